// Package kubernetes has the manifests of nexar for Kubernetes: a Kustomize base, three seeds, and overlays that
// "kubectl apply -k" applies (docs/guide/kubernetes.md).
//
// Its tests render and decode them, compare them with package launch, and play pods in network namespaces. It is a
// module of its own, so that nexar does not depend on the types of Kubernetes.
package kubernetes
