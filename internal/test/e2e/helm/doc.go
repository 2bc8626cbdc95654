// Package helm renders the chart deploy/helm/xds-relay as Helm does, and holds what comes out against Kubernetes' own
// types and schemas, against the real relay, which has to start with it, and against a real Envoy: make e2e-helm. It
// keeps deploy/kubernetes equal to what the chart renders.
//
// It is a module of its own, so that the product's go.mod knows neither Helm nor Kubernetes. It owns nothing that runs
// in a relay: apart from this comment, and a file that names the module with prometheus-operator's CRDs, it holds only
// tests.
//
// Limitations: there is no cluster. What a kubelet does, it does only as far as these tests do it: volumes are
// directories, replaced by symlinks as a kubelet does. Whether a CNI keeps a NetworkPolicy is not tested.
package helm
