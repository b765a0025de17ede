"""Contains a small optimized HLO module with costs that are known by hand.

The module is in the notation of XLA's TPU compiler. It has two loops. A loop of
three trips is within a loop whose steps depend on data, as in decoding.
"""

# Costs per trip: `product` takes 100 cycles for a matrix, and reads one of
# three layers of `weights` (16 bytes of s8) and `x` on the chip. A conditional
# takes 7 or 40 cycles. An all-reduce exchanges 64 bytes among 4 chips. There is
# also a Pallas kernel.
# Costs per step: three trips, 5 cycles of the condition, a copy of 9 cycles,
# and a sort of 64 bytes without an estimate.
# Costs per run: 11 cycles before the loop.
DECODE = """\
HloModule jit_decode, is_scheduled=true

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[]{:T(128)} parameter(0)
  %b = f32[]{:T(128)} parameter(1)
  ROOT %sum = f32[]{:T(128)} add(%a, %b)
}

%fused_product (p0: f32[4,4], p1: s8[3,4,4], p2: s32[]) -> f32[4,4] {
  %p0 = f32[4,4]{1,0:T(8,128)S(1)} parameter(0)
  %p1 = s8[3,4,4]{2,1,0:T(8,128)(4,1)} parameter(1)
  %p2 = s32[]{:T(128)} parameter(2)
  %zero = s32[]{:T(128)} constant(0)
  %slice = s8[1,4,4]{2,1,0:T(8,128)(4,1)} dynamic-slice(%p1, %p2, %zero, %zero), dynamic_slice_sizes={1,4,4}
  %layer = s8[4,4]{1,0:T(8,128)(4,1)} bitcast(%slice)
  ROOT %dot = f32[4,4]{1,0:T(8,128)S(1)} convolution(%p0, %layer), dim_labels=bf_oi->bf, metadata={op_name="jit(decode)/while/body/dot_general" stack_frame_id=1}
}

%fused_scores (s0: f32[2,4], s1: f32[2,4]) -> f32[2,2] {
  %s0 = f32[2,4]{1,0:T(2,128)S(1)} parameter(0)
  %s1 = f32[2,4]{1,0:T(2,128)S(1)} parameter(1)
  ROOT %scores = f32[2,2]{1,0:T(2,128)S(1)} convolution(%s0, %s1), dim_labels=bf_oi->bf, metadata={op_name="jit(decode)/while/body/snkh,snth->snkt/dot_general"}
}

%few (f: f32[4,4]) -> f32[4,4] {
  %f = f32[4,4]{1,0:T(8,128)S(1)} parameter(0)
  ROOT %negated = f32[4,4]{1,0:T(8,128)S(1)} negate(%f), backend_config={"window_config":{"estimated_cycles":"7"}}
}

%many (m: f32[4,4]) -> f32[4,4] {
  %m = f32[4,4]{1,0:T(8,128)S(1)} parameter(0)
  %q = f32[2,4]{1,0:T(2,128)S(1)} slice(%m), slice={[0:2], [0:4]}, backend_config={"window_config":{"estimated_cycles":"10"}}
  %attention = f32[2,2]{1,0:T(2,128)S(1)} fusion(%q, %q), kind=kOutput, calls=%fused_scores, backend_config={"window_config":{"estimated_cycles":"30"}}
  ROOT %same = f32[4,4]{1,0:T(8,128)S(1)} bitcast(%m)
}

%layer_condition (c: (s32[], f32[4,4], s8[3,4,4], pred[])) -> pred[] {
  %three = s32[]{:T(128)} constant(3)
  %c = (s32[]{:T(128)}, f32[4,4]{1,0:T(8,128)S(1)}, s8[3,4,4]{2,1,0:T(8,128)(4,1)}, pred[]{:T(512)}) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%c), index=0
  ROOT %lt = pred[]{:T(512)} compare(%i, %three), direction=LT
}

%layer_body (d: (s32[], f32[4,4], s8[3,4,4], pred[])) -> (s32[], f32[4,4], s8[3,4,4], pred[]) {
  %d = (s32[]{:T(128)}, f32[4,4]{1,0:T(8,128)S(1)}, s8[3,4,4]{2,1,0:T(8,128)(4,1)}, pred[]{:T(512)}) parameter(0)
  %j = s32[]{:T(128)} get-tuple-element(%d), index=0
  %x = f32[4,4]{1,0:T(8,128)S(1)} get-tuple-element(%d), index=1
  %weights = s8[3,4,4]{2,1,0:T(8,128)(4,1)} get-tuple-element(%d), index=2
  %which = pred[]{:T(512)} get-tuple-element(%d), index=3
  %product = f32[4,4]{1,0:T(8,128)S(1)} fusion(%x, %weights, %j), kind=kOutput, calls=%fused_product, backend_config={"window_config":{"estimated_cycles":"100"}}
  %branch = f32[4,4]{1,0:T(8,128)S(1)} conditional(%which, %product, %product), true_computation=%many, false_computation=%few
  %reduced = f32[4,4]{1,0:T(8,128)S(1)} all-reduce(%branch), channel_id=1, replica_groups=mesh['axis_0'=1,'axis_1'=4] {'axis_1'}, use_global_device_ids=true, to_apply=%add
  %kernel = f32[4,4]{1,0:T(8,128)S(1)} custom-call(%reduced, %weights), custom_call_target="tpu_custom_call", metadata={op_name="jit(decode)/while/body/attend_kernel/pallas_call"}
  ROOT %out = (s32[]{:T(128)}, f32[4,4]{1,0:T(8,128)S(1)}, s8[3,4,4]{2,1,0:T(8,128)(4,1)}, pred[]{:T(512)}) tuple(%j, %kernel, %weights, %which)
}

%step_condition (e: (s32[], f32[4,4], s32[])) -> pred[] {
  %e = (s32[]{:T(128)}, f32[4,4]{1,0:T(8,128)S(1)}, s32[]{:T(128)}) parameter(0)
  %k = s32[]{:T(128)} get-tuple-element(%e), index=0
  %most = s32[]{:T(128)} get-tuple-element(%e), index=2
  %unfinished = pred[]{:T(512)} fusion(%e), kind=kLoop, calls=%few, backend_config={"window_config":{"estimated_cycles":"5"}}
  %below = pred[]{:T(512)} compare(%k, %most), direction=LT
  ROOT %go = pred[]{:T(512)} and(%below, %unfinished), backend_config={"window_config":{"estimated_cycles":"0"}}
}

%step_body (g: (s32[], f32[4,4], s32[])) -> (s32[], f32[4,4], s32[]) {
  %g = (s32[]{:T(128)}, f32[4,4]{1,0:T(8,128)S(1)}, s32[]{:T(128)}) parameter(0)
  %layers = (s32[]{:T(128)}, f32[4,4]{1,0:T(8,128)S(1)}, s8[3,4,4]{2,1,0:T(8,128)(4,1)}, pred[]{:T(512)}) while(%g), condition=%layer_condition, body=%layer_body
  %y = f32[4,4]{1,0:T(8,128)S(1)} get-tuple-element(%layers), index=1
  %sorted = f32[4,4]{1,0:T(8,128)S(1)} sort(%y), dimensions={1}, to_apply=%add
  %moved = f32[4,4]{0,1:T(8,128)} copy(%y), backend_config={"window_config":{"estimated_cycles":"9"}}
  ROOT %stepped = (s32[]{:T(128)}, f32[4,4]{1,0:T(8,128)S(1)}, s32[]{:T(128)}) tuple(%g, %moved, %g)
}

ENTRY %main (arg: f32[4,4], steps: s32[]) -> f32[4,4] {
  %arg = f32[4,4]{1,0:T(8,128)} parameter(0)
  %steps = s32[]{:T(128)} parameter(1)
  %start = (f32[4,4]{1,0:T(8,128)S(1)}, f32[4,4]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(%arg)
  %done = f32[4,4]{1,0:T(8,128)S(1)} copy-done(%start)
  %doubled = f32[4,4]{1,0:T(8,128)S(1)} add(%done, %done), backend_config={"window_config":{"estimated_cycles":"11"}}
  %state = (s32[]{:T(128)}, f32[4,4]{1,0:T(8,128)S(1)}, s32[]{:T(128)}) tuple(%steps, %doubled, %steps)
  %loop = (s32[]{:T(128)}, f32[4,4]{1,0:T(8,128)S(1)}, s32[]{:T(128)}) while(%state), condition=%step_condition, body=%step_body
  ROOT %result = f32[4,4]{1,0:T(8,128)S(1)} get-tuple-element(%loop), index=1
}
"""

# XLA writes a reduce-scatter and an asynchronous all-gather as fusions. The
# first exchanges 128 bytes, the second 256.
EXCHANGES = """\
%all-reduce-scatter.1 (i: bf16[8,8]) -> bf16[2,8] {
  %i = bf16[8,8]{1,0:T(8,128)S(1)} parameter(0)
  %all = bf16[8,8]{1,0:T(8,128)S(1)} all-reduce(%i), channel_id=1, replica_groups={{0,1,2,3}}, to_apply=%add
  %at = u32[] partition-id()
  ROOT %part = bf16[2,8]{1,0:T(8,128)S(1)} dynamic-slice(%all, %at, %at), dynamic_slice_sizes={2,8}
}

%start (s: s8[8,8]) -> (s8[8,8], s8[32,8]) {
  %s = s8[8,8]{1,0:T(8,128)S(1)} parameter(0)
  %gather = s8[32,8]{1,0:T(8,128)S(1)} all-gather(%s), channel_id=2, replica_groups={{0,1,2,3}}, dimensions={0}
  ROOT %begun = (s8[8,8]{1,0:T(8,128)S(1)}, s8[32,8]{1,0:T(8,128)S(1)}) custom-call(%gather), custom_call_target="AsyncCollectiveStart"
}

%end (e: (s8[8,8], s8[32,8])) -> s8[32,8] {
  %e = (s8[8,8]{1,0:T(8,128)S(1)}, s8[32,8]{1,0:T(8,128)S(1)}) parameter(0)
  %again = s8[32,8]{1,0:T(8,128)S(1)} all-gather(%e), channel_id=2, replica_groups={{0,1,2,3}}, dimensions={0}
  ROOT %ended = s8[32,8]{1,0:T(8,128)S(1)} custom-call(%again), custom_call_target="AsyncCollectiveDone"
}

ENTRY %main (x: bf16[8,8], y: s8[8,8]) -> s8[32,8] {
  %x = bf16[8,8]{1,0:T(8,128)S(1)} parameter(0)
  %y = s8[8,8]{1,0:T(8,128)S(1)} parameter(1)
  %scattered = bf16[2,8]{1,0:T(8,128)S(1)} fusion(%x), kind=kCustom, calls=%all-reduce-scatter.1
  %first = (s8[8,8]{1,0:T(8,128)S(1)}, s8[32,8]{1,0:T(8,128)S(1)}) fusion(%y), kind=kCustom, calls=%start
  ROOT %last = s8[32,8]{1,0:T(8,128)S(1)} fusion(%first), kind=kCustom, calls=%end, backend_config={"window_config":{"estimated_cycles":"0"}}
}
"""
