package plugin

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/containernetworking/cni/pkg/ns"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/ipalloc/ipalloc/ipset/hostlocal"
)

// What package skel of the CNI project does for a plugin is done here, with the same checks in the same order and the same
// texts, for two reasons: skel looks at the namespace after an ADD, when the address is taken and the result printed, and
// reading stdin several times over and compiling a regular expression are a tenth of what a call takes from start to exit.

// call is one invocation.
type call struct {
	command     string
	containerID string
	netns       string
	ifName      string
	args        string
	anyNetns    bool
	caller      string // see callers
	conf        *netConf
	badVersion  error // why the version could not be read
}

func (c *call) attachment() hostlocal.Attachment {
	return hostlocal.Attachment{Container: c.containerID, Interface: c.ifName}
}

// variables are what each verb needs of its environment, in the order in which they are looked at.
var variables = []struct {
	name   string
	needed string // the verbs that fail without it
	check  func(string) *types.Error
}{
	{"CNI_COMMAND", "", nil},
	{"CNI_CONTAINERID", "ADD CHECK DEL", checkContainerID},
	{"CNI_NETNS", "ADD CHECK", nil},
	{"CNI_IFNAME", "ADD CHECK DEL", checkInterfaceName},
	{"CNI_PATH", "ADD CHECK DEL GC STATUS", nil},
}

// readCall reads the environment.
func readCall(getenv func(string) string) (*call, *types.Error) {
	c := &call{
		command: getenv("CNI_COMMAND"), containerID: getenv("CNI_CONTAINERID"), netns: getenv("CNI_NETNS"), ifName: getenv("CNI_IFNAME"),
		args: getenv("CNI_ARGS"), caller: callers(),
	}
	override := getenv("CNI_NETNS_OVERRIDE")
	c.anyNetns = strings.EqualFold(override, "true") || override == "1"
	var missing []string
	for _, v := range variables {
		needed := v.name == "CNI_COMMAND" || c.command != "" && strings.Contains(" "+v.needed+" ", " "+c.command+" ")
		switch value := getenv(v.name); {
		case value == "" && needed:
			missing = append(missing, v.name)
		case value != "" && needed && v.check != nil:
			if err := v.check(value); err != nil {
				return nil, err
			}
		}
	}
	if len(missing) > 0 {
		return nil, types.NewError(types.ErrInvalidEnvironmentVariables, "required env variables ["+strings.Join(missing, ",")+"] missing", "")
	}
	return c, nil
}

// checkContainerID refuses what is not a letter or digit followed by letters, digits, '_', '.' and '-'.
func checkContainerID(id string) *types.Error {
	if !plainName(id) {
		return types.NewError(types.ErrInvalidEnvironmentVariables, "invalid characters in containerID", id)
	}
	return nil
}

func plainName(name string) bool {
	for i, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case i > 0 && (c == '_' || c == '.' || c == '-'):
		default:
			return false
		}
	}
	return name != ""
}

// checkInterfaceName refuses what the kernel does.
func checkInterfaceName(name string) *types.Error {
	bad := func(msg, details string) *types.Error {
		return types.NewError(types.ErrInvalidEnvironmentVariables, msg, details)
	}
	const most = 15
	switch {
	case len(name) > most:
		return bad("interface name is too long", fmt.Sprintf("interface name should be less than %d characters", most+1))
	case name == "." || name == "..":
		return bad("interface name is . or ..", "")
	case strings.ContainsFunc(name, func(r rune) bool { return r == '/' || r == ':' || unicode.IsSpace(r) }):
		return bad("interface name contains / or : or whitespace characters", "")
	}
	return nil
}

// readConf reads stdin into the call. It fails as skel does when the name or the version is missing or wrong.
func (c *call) readConf(stdin io.Reader) *types.Error {
	data, err := io.ReadAll(stdin)
	if err != nil {
		return types.NewError(types.ErrIOFailure, fmt.Sprintf("error reading from stdin: %v", err), "")
	}
	c.conf = &netConf{}
	var full error
	if !c.conf.readPlain(data) {
		c.conf = &netConf{}
		full = json.Unmarshal(data, c.conf)
	}
	c.conf.raw, c.conf.caller = data, c.caller
	if full != nil { // perhaps not in what is looked at first
		var named struct {
			Name string `json:"name"`
		}
		if err := json.Unmarshal(data, &named); err != nil {
			return types.NewError(types.ErrDecodingFailure, fmt.Sprintf("error unmarshall network config: %v", err), "")
		}
		c.conf = &netConf{Name: named.Name, raw: data, caller: c.caller}
	}
	switch {
	case c.conf.Name == "":
		return types.NewError(types.ErrInvalidNetworkConfig, "missing network name", "")
	case !plainName(c.conf.Name):
		return types.NewError(types.ErrInvalidNetworkConfig, "invalid characters found in network name", c.conf.Name)
	}
	if c.conf.broken = full; full != nil {
		c.conf.CNIVersion, c.badVersion = (&version.ConfigDecoder{}).Decode(data)
	}
	return nil
}

// minimum is the version of the specification that a verb came with.
var minimum = map[string]string{"CHECK": "0.4.0", "GC": "1.1.0", "STATUS": "1.1.0"}

// checkVersion refuses a version of the configuration that the verb or the plugin does not know.
func (c *call) checkVersion() *types.Error {
	if c.badVersion != nil {
		return types.NewError(types.ErrDecodingFailure, c.badVersion.Error(), "")
	}
	conf := c.conf.CNIVersion
	if conf == "" {
		conf = "0.1.0"
	}
	if least := minimum[c.command]; least != "" {
		if ok, err := version.GreaterThanOrEqualTo(conf, least); err != nil {
			return types.NewError(types.ErrDecodingFailure, err.Error(), "")
		} else if !ok {
			return types.NewError(types.ErrIncompatibleCNIVersion, "config version does not allow "+c.command, "")
		}
		if newer, _ := version.GreaterThan(conf, version.Current()); newer {
			return types.NewError(types.ErrIncompatibleCNIVersion, "plugin version does not allow "+c.command, "")
		}
	}
	if err := (&version.Reconciler{}).Check(conf, version.All); err != nil {
		return types.NewError(types.ErrIncompatibleCNIVersion, "incompatible CNI versions", err.Details())
	}
	return nil
}

// inOwnNamespace refuses the namespace that the plugin runs in.
func (c *call) inOwnNamespace() *types.Error {
	if c.anyNetns {
		return nil
	}
	same, err := ns.CheckNetNS(c.netns)
	if err == nil && same {
		err = types.NewError(types.ErrInvalidNetNS, "plugin's netns and netns from CNI_NETNS should not be the same", "")
	}
	return err
}

// verbs are what a runtime may call.
var verbs = map[string]func(*call) ([]byte, error){"ADD": add, "CHECK": check, "DEL": del, "GC": gc, "STATUS": status}

// run carries out one invocation and returns what goes to stdout, or an error.
func run(getenv func(string) string, stdin io.Reader, stderr io.Writer) (out []byte, failure *types.Error) {
	c, err := readCall(getenv)
	if err != nil {
		if err.Code == types.ErrInvalidEnvironmentVariables && getenv("CNI_COMMAND") == "" {
			fmt.Fprintf(stderr, "%s\nCNI protocol versions supported: %s\n", about(), strings.Join(version.All.SupportedVersions(), ", "))
			return nil, nil
		}
		return nil, err
	}
	if c.command == "VERSION" {
		var s strings.Builder
		if err := version.All.Encode(&s); err != nil {
			return nil, types.NewError(types.ErrIOFailure, err.Error(), "")
		}
		return []byte(s.String()), nil
	}
	if err := c.readConf(stdin); err != nil {
		return nil, err
	}
	verb := verbs[c.command]
	if verb == nil {
		return nil, types.NewError(types.ErrInvalidEnvironmentVariables, "unknown CNI_COMMAND: "+c.command, "")
	}
	if err := c.checkVersion(); err != nil {
		return nil, err
	}
	// An ADD must leave nothing; a DEL releases what it can first.
	if c.command == "ADD" {
		if err := c.inOwnNamespace(); err != nil {
			return nil, err
		}
	}
	out, failed := verb(c)
	if failed != nil {
		return nil, asError(failed)
	}
	if c.command == "DEL" {
		return nil, c.inOwnNamespace()
	}
	return out, nil
}
