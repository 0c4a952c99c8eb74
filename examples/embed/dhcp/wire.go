package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/server4"

	"github.com/ipalloc/ipalloc/ipset/alloc"
)

// server answers DHCP messages (RFC 2131) on one interface, from leases.
type server struct {
	*leases
	out io.Writer // one line for each message
}

// serve answers until the context ends. Once a minute it sweeps, so that remembered clients do not accumulate.
func (s *server) serve(ctx context.Context, iface string) error {
	wire, err := server4.NewServer(iface, &net.UDPAddr{Port: dhcpv4.ServerPort}, func(conn net.PacketConn, peer net.Addr, m *dhcpv4.DHCPv4) {
		if reply := s.handle(ctx, m); reply != nil {
			if _, err := conn.WriteTo(reply.ToBytes(), destination(m, reply, peer)); err != nil {
				fmt.Fprintln(s.out, "send:", err)
			}
		}
	})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { wire.Close() })()
	go func() {
		for tick := time.NewTicker(time.Minute); ctx.Err() == nil; {
			select {
			case <-tick.C:
				if _, err := s.engine.Operator().Sweep(ctx, alloc.SweepArgs{}); err != nil {
					fmt.Fprintln(s.out, "sweep:", err)
				}
			case <-ctx.Done():
			}
		}
	}()
	if err := wire.Serve(); ctx.Err() == nil {
		return err
	}
	return nil
}

// destination follows RFC 2131, section 4.1: a relay, a client that has an address, or everyone on the wire.
func destination(m, reply *dhcpv4.DHCPv4, peer net.Addr) net.Addr {
	switch {
	case !m.GatewayIPAddr.IsUnspecified():
		return &net.UDPAddr{IP: m.GatewayIPAddr, Port: dhcpv4.ServerPort}
	case !m.ClientIPAddr.IsUnspecified() && reply.MessageType() == dhcpv4.MessageTypeAck:
		return peer
	}
	return &net.UDPAddr{IP: net.IPv4bcast, Port: dhcpv4.ClientPort}
}

// handle carries out one message and returns the reply to send, or nil for silence.
func (s *server) handle(ctx context.Context, m *dhcpv4.DHCPv4) *dhcpv4.DHCPv4 {
	if m.OpCode != dhcpv4.OpcodeBootRequest {
		return nil
	}
	client, wish, current := clientOf(m), address(m.RequestedIPAddress()), address(m.ClientIPAddr)
	chosen := address(m.ServerIdentifier()) // the server that the client addresses; none in INIT-REBOOT, RENEWING and REBINDING
	var a netip.Addr
	var err error
	say := m.MessageType()
	switch {
	case say == dhcpv4.MessageTypeDiscover:
		a, err = s.discover(ctx, client, wish)
	case chosen.IsValid() && chosen != ours:
		err = errSilent // our offer ends by itself after offerTime
	case say == dhcpv4.MessageTypeRequest && current.IsValid(): // RENEWING, REBINDING
		a, err = current, s.request(ctx, client, current)
	case say == dhcpv4.MessageTypeRequest && chosen == ours: // SELECTING
		a, err = wish, s.request(ctx, client, wish)
	case say == dhcpv4.MessageTypeRequest: // INIT-REBOOT
		a, err = wish, s.resume(ctx, client, wish)
	case say == dhcpv4.MessageTypeDecline:
		a, err = wish, s.decline(ctx, client, wish)
	case say == dhcpv4.MessageTypeRelease:
		a, err = current, s.release(ctx, client, current)
	case say != dhcpv4.MessageTypeInform:
		return nil
	}
	reply, text := s.reply(m, a, err)
	subject := "-"
	if a.IsValid() {
		subject = a.String()
	}
	fmt.Fprintf(s.out, "%s %s %s: %s\n", client, say, subject, text)
	return reply
}

// reply returns the reply to a message and the words for it. An error of the store is no NAK: the client asks again.
func (s *server) reply(m *dhcpv4.DHCPv4, a netip.Addr, err error) (*dhcpv4.DHCPv4, string) {
	kind := dhcpv4.MessageTypeAck
	switch say := m.MessageType(); {
	case errors.Is(err, errNAK):
		kind, a = dhcpv4.MessageTypeNak, netip.Addr{}
	case err != nil:
		return nil, err.Error()
	case say == dhcpv4.MessageTypeDiscover:
		kind = dhcpv4.MessageTypeOffer
	case say == dhcpv4.MessageTypeDecline || say == dhcpv4.MessageTypeRelease:
		return nil, "done"
	}
	reply, err := dhcpv4.NewReplyFromRequest(m, dhcpv4.WithMessageType(kind), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(ours.AsSlice())))
	if err != nil {
		return nil, err.Error()
	}
	if kind == dhcpv4.MessageTypeNak {
		reply.SetBroadcast()
		return reply, kind.String()
	}
	reply.UpdateOption(dhcpv4.OptSubnetMask(net.CIDRMask(subnet.Bits(), 32)))
	reply.UpdateOption(dhcpv4.OptRouter(ours.AsSlice()))
	if a.IsValid() {
		reply.YourIPAddr = a.AsSlice()
		reply.UpdateOption(dhcpv4.OptIPAddressLeaseTime(leaseTime))
	}
	return reply, kind.String()
}

// clientOf names a client by its identifier (option 61), or by its hardware address if it sends none, or one made of it.
func clientOf(m *dhcpv4.DHCPv4) string {
	id := m.Options.Get(dhcpv4.OptionClientIdentifier)
	if len(id) == 0 || len(id) == 7 && id[0] == 1 && string(id[1:]) == string(m.ClientHWAddr) {
		return m.ClientHWAddr.String()
	}
	return "id:" + hex.EncodeToString(id)
}

// address converts an address of a message; the zero Addr stands for none.
func address(ip net.IP) netip.Addr {
	if a, ok := netip.AddrFromSlice(ip.To4()); ok && !a.IsUnspecified() {
		return a
	}
	return netip.Addr{}
}
