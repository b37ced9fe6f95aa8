// Lanes along x, and a loop over more elements than lanes: the number of workgroups is fixed in a pipeline, the
// number of elements is not. Each workgroup takes one run of neighbours: a CPU driver finishes the whole loop of
// one vector of lanes before it begins the next, and would otherwise jump over the memory in large steps.

layout(local_size_x_id = 0) in;

uint run_length(uint count) {
    uint lanes = gl_NumWorkGroups.x * gl_WorkGroupSize.x;
    return (count + lanes - 1u) / lanes * gl_WorkGroupSize.x;
}

// EACH(i, count) statement;  runs the statement for every i below count, each in one invocation of the grid.
#define EACH(i, count) \
    for (uint i = gl_WorkGroupID.x * run_length(count) + gl_LocalInvocationID.x, \
              end_ = min(count, (gl_WorkGroupID.x + 1u) * run_length(count)); \
         i < end_; i += gl_WorkGroupSize.x)
