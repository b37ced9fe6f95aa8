#version 450
#extension GL_GOOGLE_include_directive : require
// The last dispatch of every submit. The host looks whether the count has grown, because a lost device says nothing.
#define STATUS 0
#include "status.glsl"

layout(local_size_x = 1) in;

void main() {
    status.ticks += 1u;
}
