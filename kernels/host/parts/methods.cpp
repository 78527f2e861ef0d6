/// Kernels of COPS, cuckoo tables and growing lists.
#define DG_PART 3
#include "host/part.inc"
