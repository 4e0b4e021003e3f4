"""What a training step costs on many devices, and how to lay it out over them."""
