"""What training and decoding cost, measured beside the ways they are compared with."""
