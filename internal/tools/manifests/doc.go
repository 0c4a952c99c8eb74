// Package manifests renders what operators install beside a program, with the packages of
// Helm and kustomize, and its tests hold the one against the other.
package manifests
