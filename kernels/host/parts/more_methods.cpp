/// Kernels of slab lists, super-nodes and the other methods.
#define DG_PART 4
#include "host/part.inc"
