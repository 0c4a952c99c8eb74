// Package manifests renders what operators install beside a program, with the packages of
// Helm and kustomize, and its tests hold the one against the other. It is a module of its
// own because of what these packages require.
package manifests
