// What a shader of its own finds: its inputs, its result and some numbers. Memory is large and shared: tensors
// lie at offsets in it. See Kernel in tinyadept/ops/kernels.py.
//   -DINPUTS=2                     at most 4
//   -DX=16 -DY=16 -DZ=1            invocations of a workgroup

layout(local_size_x = X, local_size_y = Y, local_size_z = Z) in;
layout(push_constant) uniform Push {
    uint offsets[5];  // of the result, then of the inputs
    int numbers[24];
} push;

layout(std430, binding = 0) buffer Result { float result_[]; };
void result(uint at, float x) { result_[push.offsets[0] + at] = x; }
int number(uint at) { return push.numbers[at]; }

layout(std430, binding = 1) readonly buffer Input0 { float input0_[]; };
float input0(uint at) { return input0_[push.offsets[1] + at]; }
#if INPUTS > 1
layout(std430, binding = 2) readonly buffer Input1 { float input1_[]; };
float input1(uint at) { return input1_[push.offsets[2] + at]; }
#endif
#if INPUTS > 2
layout(std430, binding = 3) readonly buffer Input2 { float input2_[]; };
float input2(uint at) { return input2_[push.offsets[3] + at]; }
#endif
#if INPUTS > 3
layout(std430, binding = 4) readonly buffer Input3 { float input3_[]; };
float input3(uint at) { return input3_[push.offsets[4] + at]; }
#endif
