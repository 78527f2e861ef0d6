/// Kernels of open-addressing tables.
#define DG_PART 1
#include "host/part.inc"
