"""Families of TensorFlow and Keras."""
