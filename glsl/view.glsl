// Which word of a memory holds element `i` of a strided view? All that a kernel knows of layout is here.
//
// Before including, a template may define
//   VIEWS   how many operands it has (2 when not defined), the result first;
//   PARAMS  more push constants, as members of a struct:  #define PARAMS float alpha; int width;
// Six axes and three views take 112 of the 128 bytes that Vulkan guarantees.

#ifndef VIEWS
#define VIEWS 2
#endif
#ifndef PARAMS
#define PARAMS
#endif

const int MAX_RANK = 6;
layout(constant_id = 1) const int RANK = MAX_RANK;  // axes in use: the last ones

struct View {
    int offset;              // of the first element, in words from the start of its memory
    int strides[MAX_RANK];   // 0 repeats an axis, negative walks backwards
};

layout(push_constant) uniform Push {
    uint count;              // elements
    uint shape[MAX_RANK];    // walked in row-major order, padded in front with ones
    View views[VIEWS];
    PARAMS
} push;

// The axis that is walked slowest needs no division: what is left of `i` is its index.
int cell(int view, uint i) {
    int at = push.views[view].offset;
    for (int axis = MAX_RANK - 1; axis > MAX_RANK - RANK; --axis) {
        uint rest = i / push.shape[axis];
        at += int(i - rest * push.shape[axis]) * push.views[view].strides[axis];
        i = rest;
    }
    return at + int(i) * push.views[view].strides[MAX_RANK - RANK];
}
