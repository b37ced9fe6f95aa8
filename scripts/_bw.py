import time, numpy as np, torch, tinyadept as ta
import tinyadept.functional as F
gpu=ta.device.resolve("vulkan")
def ours(f,k=10):
    for _ in range(2): y=f(); gpu.queue.flush()
    best=1e9
    for _ in range(4):
        t=[]
        for reps in (k,2*k):
            for _ in range(reps): y=f()
            t0=time.perf_counter(); gpu.queue.flush(); t.append(time.perf_counter()-t0)
        best=min(best,(t[1]-t[0])/k)
    return best
def theirs(f,k=10):
    for _ in range(3): f()
    torch.cuda.synchronize(); best=1e9
    for _ in range(4):
        s=torch.cuda.Event(enable_timing=True); e=torch.cuda.Event(enable_timing=True); s.record()
        for _ in range(k): f()
        e.record(); torch.cuda.synchronize(); best=min(best,s.elapsed_time(e)/k/1e3)
    return best
with ta.no_grad():
    X=ta.rand(65536,1024,device=gpu); Y=ta.rand(65536,1024,device=gpu); tx=torch.rand(65536,1024).cuda(); ty=tx.clone()
    n=65536*1024*4
    for name,f,g,b in [("a+b",lambda:X+Y,lambda:tx+ty,3),("exp",lambda:X.exp(),lambda:tx.exp(),2),("a*2",lambda:X*2.0,lambda:tx*2.0,2),("sum all",lambda:X.sum(),lambda:tx.sum(),1),("sum last",lambda:X.sum(1),lambda:tx.sum(1),1),("sum first",lambda:X.sum(0),lambda:tx.sum(0),1),("amax last",lambda:X.amax(1),lambda:tx.amax(1),1),("softmax",lambda:X.softmax(1),lambda:tx.softmax(1),2),("layer_norm",lambda:F.layer_norm(X,(1024,)),lambda:torch.layer_norm(tx,(1024,)),2),("cumsum",lambda:X.cumsum(1),lambda:tx.cumsum(1),2),("transpose copy",lambda:X.mT.contiguous(),lambda:tx.mT.contiguous(),2)]:
        try: a=ours(f)
        except Exception as e: print(name,type(e).__name__,str(e)[:100]); continue
        t=theirs(g); print(f"{name:15s} ours {n*b/a/1e9:7.0f} GB/s  torch {n*b/t/1e9:7.0f}  ratio {t/a:.2f}",flush=True)
