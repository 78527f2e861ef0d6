/// Keys of 16 bytes where no compare-and-swap is as wide.
#define DG_NO_KEY_SWAP
#include "wide_lockstep.cpp"
