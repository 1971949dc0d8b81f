"""What tablet servers tell: which of them count, what is believed of it, and what is remembered."""
