import time, sys, numpy as np, torch
import tinyadept as ta
from tinyadept.backends.vulkan.drivers import matmul as M
gpu=ta.device.resolve("vulkan"); print(gpu, gpu.products); P0=gpu.products
torch.backends.cuda.matmul.allow_tf32=False
def timed(f, n):
    n=max(4,n//2)
    f(); gpu.queue.flush(); best=1e9
    for _ in range(4):
        r=[]
        for reps in (n,2*n):
            for _ in range(reps): f()
            t=time.perf_counter(); gpu.queue.flush(); r.append(time.perf_counter()-t)
        best=min(best,(r[1]-r[0])/n)
    return best
def tt(f,n):
    f(); torch.cuda.synchronize(); best=1e9
    for _ in range(3):
        t=time.perf_counter()
        for _ in range(n): f()
        torch.cuda.synchronize(); best=min(best,(time.perf_counter()-t)/n)
    return best
rng=np.random.default_rng(0)
A0=ta.tensor(np.ones((64,64),'f'),device=gpu)
for rep in range(3):
    t=time.perf_counter()
    for _ in range(100): A0@A0
    t1=time.perf_counter(); gpu.queue.flush(); t2=time.perf_counter()
    print("note us %.1f flush us/op %.1f"%((t1-t)*1e4,(t2-t1)*1e4))
keep=[A0@A0 for _ in range(100)]; gpu.queue.flush(); del keep
t=time.perf_counter(); keep=[A0@A0 for _ in range(100)]; t1=time.perf_counter(); gpu.queue.flush(); print("independent: note %.1f flush %.1f"%((t1-t)*1e4,(time.perf_counter()-t1)*1e4)); del keep
for (n,k,m) in [(1024,1024,1024),(2048,2048,2048),(4096,4096,4096),(128,4096,1024)]:
    a=rng.standard_normal((n,k),dtype=np.float32); b=rng.standard_normal((k,m),dtype=np.float32)
    A,B=ta.tensor(a,device=gpu),ta.tensor(b,device=gpu); ca,cb=torch.tensor(a).cuda(),torch.tensor(b).cuda()
    ref=(ca@cb).cpu().numpy(); fl=2*n*k*m; reps=max(4,min(60,int(2e12/fl)))
    base=tt(lambda:ca@cb,reps); line=f"{n}x{k}x{m} torch {fl/base/1e12:.1f} |"
    res=[]
    for t in M.TILES:
        for s in (1,2,4,8):
            if s>1 and (n>1024 or t.n*t.m<4 and s>4): continue
            gpu.products=P0._replace(forced=(t,s))
            try:
                got=(A@B); ok=np.allclose(got.numpy(),ref,rtol=1e-3,atol=1e-2)
                x=timed(lambda:A@B,reps)
                line+=f" {64*t.n}x{32*t.m}/{s}: {fl/x/1e12:.1f}{'' if ok else ' WRONG'}"
            except Exception as e: line+=f" {type(e).__name__} {e}"[:80]
    gpu.products=P0
    gpu.products=P0
    At,Bt=ta.tensor(a.T.copy(),device=gpu).mT,ta.tensor(b.T.copy(),device=gpu).mT
    for nm,X,Y in (("tn",At,B),("nt",A,Bt)):
        gpu.products=P0._replace(forced=(M.TILES[0],1))
        ok=np.allclose((X@Y).numpy(),ref,rtol=1e-3,atol=1e-2); x=timed(lambda:X@Y,reps); line+=f" {nm}: {fl/x/1e12:.1f}{'' if ok else ' WRONG'}"
    gpu.products=P0
    x=timed(lambda:A@B,reps); line+=f' | chosen {fl/x/1e12:.1f}'
    print(line,flush=True)
