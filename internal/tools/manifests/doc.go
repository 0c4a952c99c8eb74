// Package manifests renders the objects that operators install for a program, with the
// packages of Helm and kustomize. Its tests compare the two.
package manifests
