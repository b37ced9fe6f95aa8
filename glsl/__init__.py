"""Shader templates: one a family, and the headers that they share."""
