"""The control plane: messages between trainers, workers and the dispatcher, over grpclib."""
