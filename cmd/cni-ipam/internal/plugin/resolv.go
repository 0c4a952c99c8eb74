package plugin

import (
	"bufio"
	"os"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
)

// parseResolvConf reads a file in the form of resolv.conf. Lines that begin with # or ; and those of less than two words
// are left out, and so is what it does not know.
func parseResolvConf(path string) (*types.DNS, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	dns := &types.DNS{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 2 || words[0][0] == '#' || words[0][0] == ';' {
			continue
		}
		switch words[0] {
		case "nameserver":
			dns.Nameservers = append(dns.Nameservers, words[1])
		case "domain":
			dns.Domain = words[1]
		case "search":
			dns.Search = append(dns.Search, words[1:]...)
		case "options":
			dns.Options = append(dns.Options, words[1:]...)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	return dns, nil
}
