"""The vocabulary that both wings share: fragment keys, images, symbols, fragments."""
