"""How elements travel: messages, the codec for their bytes, and the transports that carry them."""
