// A while node, alone; with a copy; nested; with a memset; with local memory.
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#define CK(x) do { cudaError_t bad_ = (x); if (bad_) { printf("%s: %s\n", #x, cudaGetErrorString(bad_)); exit(1); } } while (0)
__global__ void body(float* x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] *= 0.9f; }
__global__ void test(cudaGraphConditionalHandle h, const float* x, int* count) { *count += 1; cudaGraphSetConditional(h, x[0] > 1e-2f); }
__global__ void local(float* x, int k) { volatile float a[1024]; for (int i = 0; i < 1024; ++i) a[(i * k) & 1023] = i; x[threadIdx.x] *= 0.9f + 0 * a[(int)x[0]]; }
int main(int argc, char** argv) {
  int way = atoi(argv[1]);
  float *x, *y; int* c; CK(cudaMalloc(&x, 4096)); CK(cudaMalloc(&y, 4096)); CK(cudaMalloc(&c, 4));
  float one[1024]; for (auto& v : one) v = 1;
  CK(cudaMemcpy(x, one, 4096, cudaMemcpyDefault)); CK(cudaMemset(c, 0, 4)); CK(cudaMemset(y, 0, 4096));
  cudaStream_t s, t; CK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking)); CK(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
  cudaGraph_t g; CK(cudaGraphCreate(&g, 0));
  cudaGraphConditionalHandle h; CK(cudaGraphConditionalHandleCreate(&h, g, 1, cudaGraphCondAssignDefault));
  cudaGraphNodeParams p = {}; p.type = cudaGraphNodeTypeConditional; p.conditional.handle = h; p.conditional.type = cudaGraphCondTypeWhile; p.conditional.size = 1;
  cudaGraphNode_t node; CK(cudaGraphAddNode(&node, g, nullptr, nullptr, 0, &p));
  cudaGraph_t sub = p.conditional.phGraph_out[0];
  CK(cudaStreamBeginCaptureToGraph(s, sub, nullptr, nullptr, 0, cudaStreamCaptureModeRelaxed));
  body<<<4, 256, 0, s>>>(x, 1024);
  if (way == 1) CK(cudaMemcpyAsync(y, x, 4096, cudaMemcpyDeviceToDevice, s));
  if (way == 2) CK(cudaMemsetAsync(y, 0, 4096, s));
  if (way == 3) local<<<1, 256, 0, s>>>(x, 3);
  test<<<1, 1, 0, s>>>(h, x, c);
  CK(cudaStreamEndCapture(s, &sub));
  cudaGraphExec_t e; CK(cudaGraphInstantiate(&e, g, 0));
  for (int k = 0; k < 2; ++k) { CK(cudaMemcpy(x, one, 4096, cudaMemcpyDefault)); CK(cudaGraphLaunch(e, t)); CK(cudaStreamSynchronize(t)); }
  int n; CK(cudaMemcpy(&n, c, 4, cudaMemcpyDefault)); printf("way %d: %d rounds\n", way, n);
}
