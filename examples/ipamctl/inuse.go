package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"

	"github.com/ipalloc/ipalloc/ipset"
)

const inUseHelp = `FILE lists what is in use, in one of these forms:
  an address on each line, and after it the handle, separated by spaces or a comma
  the output of kubectl get pods -A -o json; pods that have ended do not count`

// readFile reads a file, or standard input under the name "-".
func (a *app) readFile(name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(a.stdin)
	}
	return os.ReadFile(name)
}

// readInUse reads a list of what is in use.
func (a *app) readInUse(file string) ([]ipset.InUse, error) {
	text, err := a.readFile(file)
	if err != nil {
		return nil, err
	}
	if first := bytes.TrimSpace(text); len(first) > 0 && first[0] == '{' {
		return podsInUse(file, text)
	}
	var list []ipset.InUse
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line, _, _ := strings.Cut(lines.Text(), "#")
		f := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' || r == ',' })
		if len(f) == 0 || n == 1 && f[0] == "address" {
			continue
		}
		ip, err := parseAddr(f[0])
		if err != nil {
			return nil, fail(exitUsage, "%s:%d: %q is not an IP address", file, n, f[0])
		}
		use := ipset.InUse{Address: ip}
		if len(f) > 1 {
			use.Handle = f[1]
		}
		list = append(list, use)
	}
	return list, lines.Err()
}

// podsInUse reads a list of pods as kubectl prints it. Pods that have ended, and those on the host's
// network, use no address.
func podsInUse(file string, text []byte) ([]ipset.InUse, error) {
	var pods struct {
		Kind  string
		Items []struct {
			Metadata struct{ Namespace, Name string }
			Spec     struct{ HostNetwork bool }
			Status   struct {
				Phase  string
				PodIPs []struct{ IP string }
			}
		}
	}
	if err := json.Unmarshal(text, &pods); err != nil {
		return nil, fail(exitUsage, "%s: %v", file, err)
	}
	if pods.Items == nil {
		return nil, fail(exitUsage, "%s: not a list of pods", file)
	}
	var list []ipset.InUse
	for _, p := range pods.Items {
		if p.Spec.HostNetwork || p.Status.Phase == "Succeeded" || p.Status.Phase == "Failed" {
			continue
		}
		for _, ip := range p.Status.PodIPs {
			at, err := parseAddr(ip.IP)
			if err != nil {
				return nil, fail(exitUsage, "%s: pod %s/%s: %q is not an IP address", file, p.Metadata.Namespace, p.Metadata.Name, ip.IP)
			}
			list = append(list, ipset.InUse{Address: at})
		}
	}
	return list, nil
}
