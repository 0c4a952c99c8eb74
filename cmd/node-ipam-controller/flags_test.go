package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// plain are the flags of a run that serves nodes from one pool.
func plain(more ...string) []string {
	return append([]string{"-allocate-node-cidrs", "-leader-elect=false", "-cluster-cidr", "10.0.0.0/22"}, more...)
}

// labelledRun are those of a run that serves nodes from ClusterCIDR objects.
func labelledRun(more ...string) []string {
	return append([]string{"-allocate-node-cidrs", "-leader-elect=false", "-cidr-allocator-type", "MultiCIDRRangeAllocator", "-cluster-cidrs-sync-period", "20ms"}, more...)
}

func (s *apiServer) want(what string, got, want any) {
	s.t.Helper()
	if got != want {
		s.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func (s *apiServer) contains(text string, parts ...string) {
	s.t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			s.t.Errorf("no %q in %s", part, text)
		}
	}
}

// file writes a file for the test.
func (s *apiServer) file(text string) string {
	s.t.Helper()
	return configFile(s.t, text)
}

// mask returns a test that a flag sets the prefix length of a node's CIDR.
func mask(flag, pools, want string) func(*apiServer) {
	return func(s *apiServer) {
		s.node("n", nil)
		s.start(plain("-cluster-cidr", pools, flag)...)
		s.want(flag, s.served("n"), want)
	}
}

// flagTests has a test of each flag of the program, against an API server over HTTP.
var flagTests = map[string]func(*apiServer){
	"config": func(s *apiServer) {
		s.node("n", nil)
		s.start("-config", s.file("allocate-node-cidrs: true\nleader-elect: false\ncluster-cidr: 10.1.0.0/16\nnode-cidr-mask-size: 25"), "-node-cidr-mask-size", "26")
		s.want("CIDR of the file, size of the command line", s.served("n"), "10.1.0.0/26")
	},
	"allocate-node-cidrs": func(s *apiServer) {
		code, log := s.finish("-cluster-cidr", "10.0.0.0/16")
		s.want("exit code", code, 2)
		s.contains(log, "-allocate-node-cidrs")
		s.node("n", nil)
		s.start(plain()...)
		s.want("CIDR", s.served("n"), "10.0.0.0/24")
	},
	"dry-run": func(s *apiServer) {
		s.node("a", nil, "10.0.0.0/24")
		s.node("b", nil)
		code, out := s.finish("-dry-run", "-cluster-cidr", "10.0.0.0/22")
		s.want("exit code", code, 0)
		s.contains(out, "a\thas\t10.0.0.0/24", "b\twould get\t10.0.1.0/24")
		s.node("c", nil, "10.0.0.0/24")
		code, out = s.finish("-dry-run", "-cluster-cidr", "10.0.0.0/22")
		s.want("exit code when something is wrong", code, 3)
		s.contains(out, "c\tWRONG\t")
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
			s.want(method, len(s.asked(method, "")), 0)
		}
	},
	"explain": func(s *apiServer) {
		s.clusterCIDR("large", map[string]any{"perNodeHostBits": 10, "ipv4": "10.0.0.0/16", "nodeSelector": map[string]any{
			"nodeSelectorTerms": []any{map[string]any{"matchExpressions": []any{map[string]any{"key": "size", "operator": "Exists"}}}}}})
		s.node("n", map[string]any{"size": "large"})
		s.node("other", nil)
		code, out := s.finish("-explain", "n", "-cidr-allocator-type", "MultiCIDRRangeAllocator")
		s.want("exit code", code, 0)
		s.contains(out, "large")
		code, _ = s.finish("-explain", "other", "-cidr-allocator-type", "MultiCIDRRangeAllocator")
		s.want("exit code when none serves it", code, 3)
		s.want("patches", len(s.asked("PATCH", "")), 0)
	},
	"version": func(s *apiServer) {
		code, out := s.finish("-version")
		s.want("exit code", code, 0)
		s.contains(out, "node-ipam-controller ", "(go1.")
		s.want("requests", len(s.asked("GET", "")), 0)
	},
	"v": func(s *apiServer) {
		s.node("n", nil)
		quiet, loud := s.start(plain()...), s.start(plain("-v", "4")...)
		s.wait("a line for developers", func() bool { return strings.Contains(loud.String(), "level=DEBUG") })
		s.want("lines for developers without the flag", strings.Contains(quiet.String(), "level=DEBUG"), false)
	},
	"log-format": func(s *apiServer) {
		p := s.start(plain("-log-format", "json")...)
		s.wait("a line", func() bool { return strings.Contains(p.String(), "\n") })
		p.stop()
		for line := range strings.Lines(p.String()) {
			if json.Unmarshal([]byte(line), &map[string]any{}) != nil {
				s.t.Errorf("no JSON: %s", line)
			}
		}
		code, log := s.finish(plain("-log-format", "xml")...)
		s.want("exit code", code, 2)
		s.contains(log, "want text or json")
	},
	"success-events": func(s *apiServer) {
		s.node("n", nil)
		s.start(plain("-success-events")...)
		s.wait("an event", func() bool { return len(s.asked("POST", "/events")) > 0 })
		body := s.asked("POST", "/events")[0].body
		s.want("event", fmt.Sprint(body["type"], " ", body["reason"], " ", body["message"]), "Normal CIDRAssigned 10.0.0.0/24")
		other := newAPIServer(s.t)
		other.node("n", nil)
		other.start(plain()...)
		other.served("n")
		time.Sleep(50 * time.Millisecond)
		s.want("events without the flag", len(other.asked("POST", "/events")), 0)
	},
	"cidr-allocator-type": func(s *apiServer) {
		s.clusterCIDR("e", map[string]any{"perNodeHostBits": 8, "ipv4": "10.9.0.0/16"})
		s.node("n", nil)
		p := s.start(plain("-cidr-allocator-type", "RangeAllocator")...)
		s.want("CIDR of -cluster-cidr", s.served("n"), "10.0.0.0/24")
		s.want("exit code after a signal", p.stop(), 0)
		s.node("m", nil)
		s.start(labelledRun()...)
		s.want("CIDR of the ClusterCIDR", s.served("m"), "10.9.0.0/24")
		code, log := s.finish(plain("-cidr-allocator-type", "CloudAllocator")...)
		s.want("exit code", code, 2)
		s.contains(log, "cloud provider")
	},
	"cluster-cidr": func(s *apiServer) {
		for _, name := range []string{"a", "b", "c"} {
			s.node(name, nil)
		}
		s.start(plain("-cluster-cidr", "fd00::/56,010.0.0.7/23,10.7.0.0/24")...) // host bits are masked, zeros are decimal
		var got []string
		for _, name := range []string{"a", "b", "c"} {
			got = append(got, s.served(name))
		}
		slices.Sort(got)
		s.want("CIDRs", fmt.Sprint(got), "[fd00:0:0:1::/64 10.0.1.0/24 fd00:0:0:2::/64 10.7.0.0/24 fd00::/64 10.0.0.0/24]")

		// With ClusterCIDRs it names the families that all need, and what contains theirs.
		other := newAPIServer(s.t)
		other.clusterCIDR("outside", map[string]any{"perNodeHostBits": 8, "ipv4": "10.9.0.0/16", "ipv6": "fd00:9::/112"})
		other.clusterCIDR("single", map[string]any{"perNodeHostBits": 8, "ipv4": "10.0.0.0/16"})
		other.clusterCIDR("fits", map[string]any{"perNodeHostBits": 8, "ipv4": "10.0.0.0/16", "ipv6": "fd00:9::/112"})
		other.node("n", nil)
		p := other.start(labelledRun("-cluster-cidr", "10.0.0.0/14,fd00::/48")...)
		s.want("CIDRs", other.served("n"), "10.0.0.0/24 fd00:9::/120")
		other.wait("both refusals", func() bool { return strings.Count(p.String(), "is not in force") == 2 })
		s.contains(p.String(), "ClusterCIDR outside", "ClusterCIDR single")
	},
	"node-cidr-mask-size":      mask("-node-cidr-mask-size=26", "10.0.0.0/22", "10.0.0.0/26"),
	"node-cidr-mask-size-ipv4": mask("-node-cidr-mask-size-ipv4=27", "10.0.0.0/22,fd00::/56", "10.0.0.0/27 fd00::/64"),
	"node-cidr-mask-size-ipv6": mask("-node-cidr-mask-size-ipv6=80", "10.0.0.0/22,fd00::/70", "10.0.0.0/24 fd00::/80"),
	"service-cluster-ip-range": func(s *apiServer) {
		s.node("n", nil)
		p := s.start(plain("-service-cluster-ip-range", "10.0.0.0/23,010.0.002.0/24")...)
		s.want("the CIDR behind the ranges", s.served("n"), "10.0.3.0/24")
		s.want("warning", strings.Contains(p.String(), "no service CIDR"), false)
		p.stop()
		p = s.start(plain()...)
		s.wait("the warning", func() bool { return strings.Contains(p.String(), "no service CIDR") })
		p.stop()
		s.mu.Lock()
		s.put("/apis/networking.k8s.io/v1/servicecidrs/kubernetes", map[string]any{"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
			"metadata": map[string]any{"name": "kubernetes"}, "spec": map[string]any{"cidrs": []any{"10.4.0.0/23"}}})
		s.mu.Unlock()
		s.node("m", nil)
		p = s.start(plain("-cluster-cidr", "10.4.0.0/22", "-service-cluster-ip-range", "10.4.2.0/24")...)
		s.want("the CIDR behind those of the flag and the object", s.served("m"), "10.4.3.0/24")
		s.want("warning", strings.Contains(p.String(), "no service CIDR"), false)
	},
	"families": func(s *apiServer) {
		s.clusterCIDR("single", map[string]any{"perNodeHostBits": 8, "ipv4": "10.9.0.0/24"})
		s.clusterCIDR("dual", map[string]any{"perNodeHostBits": 8, "ipv4": "10.0.0.0/16", "ipv6": "fd00::/112"})
		s.node("n", nil)
		p := s.start(labelledRun("-families", "IPv6,IPv4")...)
		s.want("CIDRs in the order of the flag", s.served("n"), "fd00::/120 10.0.0.0/24")
		s.wait("the refusal", func() bool { return strings.Contains(p.String(), "ClusterCIDR single") })
	},
	"cluster-cidrs-sync-period": func(s *apiServer) {
		s.clusterCIDR("e", map[string]any{"perNodeHostBits": 8, "ipv4": "10.3.0.0/24"})
		s.node("a", nil)
		s.start(labelledRun("-cluster-cidrs-sync-period", "20ms")...)
		s.served("a")
		s.wait("the count of nodes, which no event of an object announces", func() bool {
			for _, r := range s.asked("PATCH", "/clustercidrs/e/status") {
				if status, _ := r.body["status"].(map[string]any); status["nodes"] == 1.0 {
					return true
				}
			}
			return false
		})
		code, _ := s.finish(labelledRun("-cluster-cidrs-sync-period", "0s")...)
		s.want("exit code", code, 2)
	},
	"leader-elect": func(s *apiServer) {
		s.node("n", nil)
		p := s.start(plain()...)
		s.served("n")
		p.stop()
		s.want("requests for leases without it", len(s.asked("POST", "/leases")), 0)
		s.node("m", nil)
		s.start(plain("-leader-elect")...)
		s.served("m")
		s.want("leases", len(s.asked("POST", "/leases")), 1)
	},
	"leader-elect-lease-duration": func(s *apiServer) {
		s.start(plain("-leader-elect", "-leader-elect-lease-duration", "40s")...)
		s.wait("the lease", func() bool { return len(s.asked("POST", "/leases")) > 0 })
		spec := s.asked("POST", "/leases")[0].body["spec"].(map[string]any)
		s.want("duration of the lease", spec["leaseDurationSeconds"], 40.0)
	},
	"leader-elect-renew-deadline": func(s *apiServer) {
		var mu sync.Mutex
		var first time.Time
		s.hold = func(r *http.Request) int {
			mu.Lock()
			defer mu.Unlock()
			if r.Method != http.MethodPut || !strings.Contains(r.URL.Path, "/leases/") {
				return 0
			}
			if first.IsZero() {
				first = time.Now()
			}
			return http.StatusInternalServerError
		}
		code, log := s.finish(plain("-leader-elect", "-leader-elect-renew-deadline", "400ms", "-leader-elect-lease-duration", "2s")...)
		mu.Lock()
		defer mu.Unlock()
		s.want("exit code", code, 1)
		s.contains(log, "the lease was lost")
		if d := time.Since(first); d < 300*time.Millisecond { // the deadline begins with the last success
			s.t.Errorf("it gave up after %v", d)
		}
	},
	"leader-elect-retry-period": func(s *apiServer) {
		s.start(plain("-leader-elect", "-leader-elect-retry-period", "60ms")...)
		s.wait("the lease to be renewed", func() bool { return len(s.asked("PUT", "/leases/")) > 3 })
		puts := s.asked("PUT", "/leases/")
		if d := puts[3].at.Sub(puts[0].at); d < 150*time.Millisecond {
			s.t.Errorf("three renewals within %v", d)
		}
	},
	"leader-elect-resource-name": func(s *apiServer) {
		s.start(plain("-leader-elect", "-leader-elect-resource-name", "own")...)
		s.wait("the lease", func() bool { return len(s.asked("PUT", "/namespaces/kube-system/leases/own")) > 0 })
	},
	"leader-elect-resource-namespace": func(s *apiServer) {
		s.start(plain("-leader-elect", "-leader-elect-resource-namespace", "other")...)
		s.wait("the lease", func() bool { return len(s.asked("PUT", "/namespaces/other/leases/node-ipam-controller")) > 0 })
	},
	"http-address": func(s *apiServer) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			s.t.Fatal(err)
		}
		address := l.Addr().String()
		_ = l.Close()
		s.start(plain("-http-address", address)...)
		for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
			s.wait(path, func() bool {
				resp, err := http.Get("http://" + address + path)
				if err != nil {
					return false
				}
				defer func() { _ = resp.Body.Close() }()
				return resp.StatusCode == http.StatusOK
			})
		}
	},
	"kubeconfig": func(s *apiServer) {
		code, log := s.finish(plain("-kubeconfig", filepath.Join(s.t.TempDir(), "none"))...)
		s.want("exit code", code, 2)
		s.contains(log, "no such file")
		s.node("n", nil)
		s.start(plain("-kubeconfig", kubeconfig(s.t, s.URL))...)
		s.served("n")
	},
	"master": func(s *apiServer) {
		s.node("n", nil)
		s.start(plain("-kubeconfig", kubeconfig(s.t, "http://127.0.0.1:1"), "-master", s.URL)...)
		s.served("n")
	},
	"kube-api-qps": func(s *apiServer) {
		for i := range 6 {
			s.node(fmt.Sprint("n", i), nil)
		}
		s.start(plain("-kube-api-qps", "20", "-kube-api-burst", "1", "-cluster-cidr", "10.0.0.0/16")...)
		s.wait("the patches", func() bool { return len(s.asked("PATCH", "/nodes/")) >= 6 })
		patches := s.asked("PATCH", "/nodes/")
		if d := patches[5].at.Sub(patches[0].at); d < 200*time.Millisecond {
			s.t.Errorf("five patches after the first, at 20 a second, within %v", d)
		}
	},
	"kube-api-burst": func(s *apiServer) {
		for i := range 6 {
			s.node(fmt.Sprint("n", i), nil)
		}
		s.start(plain("-kube-api-qps", "0.01", "-kube-api-burst", "40", "-cluster-cidr", "10.0.0.0/16")...)
		for i := range 6 {
			s.served(fmt.Sprint("n", i)) // the rate alone would take minutes
		}
	},
	"concurrent-node-syncs": func(s *apiServer) {
		var mu sync.Mutex
		now, most := 0, 0
		s.hold = func(r *http.Request) int {
			if r.Method == http.MethodPatch {
				mu.Lock()
				now++
				most = max(most, now)
				mu.Unlock()
				time.Sleep(20 * time.Millisecond)
				mu.Lock()
				now--
				mu.Unlock()
			}
			return 0
		}
		for i := range 12 {
			s.node(fmt.Sprintf("n%02d", i), nil)
		}
		s.start(plain("-concurrent-node-syncs", "3", "-cluster-cidr", "10.0.0.0/16")...)
		for i := range 12 {
			s.served(fmt.Sprintf("n%02d", i))
		}
		mu.Lock()
		defer mu.Unlock()
		s.want("patches at once", most, 3)
		code, _ := s.finish(plain("-concurrent-node-syncs", "0")...)
		s.want("exit code", code, 2)
	},
}
