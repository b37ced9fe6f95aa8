#version 450
#extension GL_GOOGLE_include_directive : require
// Values written where an index points. Views: the target at index 0, the index, the values.
//   -DSTEP=MARK   in each cell of the target the number of the last value that meets it, plus one
//   -DSTEP=WRITE  the values whose numbers were left are written
//   -DSTEP=PLAIN  all are written, because no two meet
#define MARK 0
#define WRITE 1
#define PLAIN 2

#define VIEWS 3
#define PARAMS int step; int size; uint site; int marks_from_target;
#include "grid.glsl"
#include "view.glsl"

#if STEP == MARK
#define STATUS 2
layout(binding = 0) buffer Marks { uint marks[]; };
#elif STEP == WRITE
layout(binding = 0) writeonly buffer To { uint to[]; };
layout(binding = 2) readonly buffer Values { uint values[]; };
layout(binding = 3) readonly buffer Marks { uint marks[]; };
#else
#define STATUS 3
layout(binding = 0) writeonly buffer To { uint to[]; };
layout(binding = 2) readonly buffer Values { uint values[]; };
#endif
layout(binding = 1) readonly buffer Index { int index[]; };

#ifdef STATUS
#include "status.glsl"
void refuse(int at) { report(push.site, at, push.size); }
#else
void refuse(int at) {}
#endif

void main() {
    EACH(i, push.count) {
        int at = index[cell(1, i)];
        if (at < 0 || at >= push.size) {
            refuse(at);
            continue;
        }
        int target = cell(0, i) + at * push.step;
#if STEP == MARK
        atomicMax(marks[target + push.marks_from_target], i + 1u);
#elif STEP == WRITE
        if (marks[target + push.marks_from_target] == i + 1u) to[target] = values[cell(2, i)];
#else
        to[target] = values[cell(2, i)];
#endif
    }
}
