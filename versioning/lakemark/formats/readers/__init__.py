"""Reads headers and indexes of files, without building what they hold."""
