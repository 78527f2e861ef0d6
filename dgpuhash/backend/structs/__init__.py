"""The arguments of kernels, as C++ declares them, and the kernels that take them."""
