/// Kernels of lists, groups, columns and k-mers.
#define DG_PART 2
#include "host/part.inc"
