"""The data plane: messages, compression of their bodies, and the transports that carry them."""
