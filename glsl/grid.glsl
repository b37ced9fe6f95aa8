// Lanes along x, and a loop over more elements than lanes: the number of workgroups is fixed in a pipeline, the
// number of elements is not.

layout(local_size_x_id = 0) in;

#define EACH(i, count) \
    for (uint i = gl_GlobalInvocationID.x; i < (count); i += gl_NumWorkGroups.x * gl_WorkGroupSize.x)
