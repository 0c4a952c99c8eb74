// Command cni is a CNI IPAM plugin in a hundred lines: ADD, DEL, CHECK, GC and STATUS of one
// network. Its state is in a file that survives any crash. A complete plugin is
// cmd/cni-ipam.
//
// A runtime calls it with CNI_COMMAND and its companions in the environment and the
// configuration on standard input. Without CNI_COMMAND it plays a runtime and calls itself.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/ipset/boltstore"
	"github.com/ipalloc/ipalloc/ipset/hostlocal"
)

// config is the part of the network configuration that the plugin reads.
type config struct {
	Version string `json:"cniVersion"`
	Name    string `json:"name"`
	IPAM    struct {
		Subnets []netip.Prefix `json:"subnets"` // an address of each
		File    string         `json:"file"`
	} `json:"ipam"`
	Valid []struct {
		Container string `json:"containerID"`
		Interface string `json:"ifname"`
	} `json:"cni.dev/valid-attachments"`
	Previous struct {
		IPs []ip `json:"ips"`
	} `json:"prevResult"`
}

type ip struct {
	Address netip.Prefix `json:"address"`
	Gateway netip.Addr   `json:"gateway"`
}

// plugin carries out one call of a runtime.
func plugin(ctx context.Context, env func(string) string, stdin io.Reader, stdout io.Writer) error {
	var c config
	if err := json.NewDecoder(stdin).Decode(&c); err != nil {
		return err
	}
	db, err := boltstore.Open(ctx, c.IPAM.File, boltstore.Options{LockWait: 10 * time.Second}) // calls may come at once
	if err != nil {
		return err
	}
	defer db.Close()
	var sets []hostlocal.RangeSet
	for _, p := range c.IPAM.Subnets {
		sets = append(sets, hostlocal.RangeSet{{Subnet: p}})
	}
	engine, err := hostlocal.New(db, hostlocal.Config{Network: c.Name, Sets: sets})
	if err != nil {
		return err
	}
	who := hostlocal.Attachment{Container: env("CNI_CONTAINERID"), Interface: env("CNI_IFNAME")}
	switch command := env("CNI_COMMAND"); command {
	case "ADD":
		got, err := engine.Add(ctx, who)
		if err != nil {
			return err
		}
		result := struct {
			Version string `json:"cniVersion"`
			IPs     []ip   `json:"ips"`
		}{Version: c.Version}
		for _, a := range got {
			result.IPs = append(result.IPs, ip{a.Prefix, a.Gateway})
		}
		return json.NewEncoder(stdout).Encode(result)
	case "DEL": // it may be repeated
		_, err := engine.Del(ctx, who)
		return err
	case "CHECK":
		var held []netip.Addr
		for _, p := range c.Previous.IPs {
			held = append(held, p.Address.Addr())
		}
		return engine.Verify(ctx, who, held...)
	case "GC":
		var valid []hostlocal.Attachment
		for _, v := range c.Valid {
			valid = append(valid, hostlocal.Attachment{Container: v.Container, Interface: v.Interface})
		}
		_, err := engine.GC(ctx, hostlocal.GCArgs{Valid: valid})
		return err
	case "STATUS":
		return engine.Status(ctx)
	default:
		return fmt.Errorf("CNI_COMMAND %q is not known", command)
	}
}

func main() {
	ctx, err := context.Background(), error(nil)
	if os.Getenv("CNI_COMMAND") != "" {
		err = plugin(ctx, os.Getenv, os.Stdin, os.Stdout)
	} else {
		err = play(ctx)
	}
	if errors.Is(err, ipalloc.ErrFull) {
		log.Fatal("no address is left: ", err) // a real plugin prints this as JSON with an error code
	} else if err != nil {
		log.Fatal(err)
	}
}

// play calls the plugin as a runtime would.
func play(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "cni")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	conf := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"pods","ipam":{"subnets":["10.1.0.0/24","fd00:1::/64"],"file":%q}`, filepath.Join(dir, "pods.db"))
	for _, call := range []struct{ step, command, container, more string }{
		{"a starts", "ADD", "a", ""}, {"b starts", "ADD", "b", ""},
		{"a ends", "DEL", "a", ""}, {"a ends, told again", "DEL", "a", ""}, {"c starts", "ADD", "c", ""},
		{"c still has its address", "CHECK", "c", `,"prevResult":{"ips":[{"address":"10.1.0.4/24"}]}`},
		{"only c is alive, so b's addresses are released", "GC", "", `,"cni.dev/valid-attachments":[{"containerID":"c","ifname":"eth0"}]`},
		{"the plugin is ready for ADD", "STATUS", "", ""},
	} {
		env := map[string]string{"CNI_COMMAND": call.command, "CNI_CONTAINERID": call.container, "CNI_IFNAME": "eth0"}
		var out strings.Builder
		if err := plugin(ctx, func(k string) string { return env[k] }, strings.NewReader(conf+call.more+"}"), &out); err != nil {
			return err
		}
		fmt.Println(strings.TrimSpace(call.command + " (" + call.step + ") " + out.String()))
	}
	return nil
}
