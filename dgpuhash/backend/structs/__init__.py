"""Argument structs of kernels, as in C++, and the kernels that take them."""
