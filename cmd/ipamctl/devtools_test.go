package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// browser is a Chromium that a test drives through its two pipes.
type browser struct {
	t       *testing.T
	to      *os.File
	answers chan answerOf
	id      int
	session string
	said    []string // what went wrong on the page
}

type answerOf struct {
	ID        int
	Method    string
	SessionID string
	Params    json.RawMessage
	Result    json.RawMessage
	Error     *struct{ Message string }
}

// newBrowser starts a browser with an empty page.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	path := chromium(t)
	theirs, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, ours, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ctx, kill := context.WithCancel(context.Background()) // t's ends first, and would end the browser in the middle of its work
	cmd := exec.CommandContext(ctx, path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--user-data-dir="+browserDir(t), "--remote-debugging-pipe")
	cmd.ExtraFiles = []*os.File{theirs, ours}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	ours.Close()
	b := &browser{t: t, to: to, answers: make(chan answerOf, 1000)}
	go func() {
		defer close(b.answers)
		lines := bufio.NewReader(from)
		for {
			text, err := lines.ReadBytes(0)
			if err != nil {
				return
			}
			var a answerOf
			if json.Unmarshal(text[:len(text)-1], &a) == nil {
				b.answers <- a
			}
		}
	}()
	t.Cleanup(func() {
		defer kill()
		late := time.AfterFunc(30*time.Second, kill)
		defer late.Stop()
		to.Close() // which ends the browser
		_ = cmd.Wait()
	})
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var session struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session)
	b.session = session.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log"} {
		b.call(domain+".enable", nil, nil)
	}
	return b
}

// browserDir returns a directory for what a browser keeps. Its processes may write there for a moment after the first one has ended.
func browserDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "ipamctl-browser")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 100 {
			if err = os.RemoveAll(dir); err == nil {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		t.Error(err)
	})
	return dir
}

// call calls a method of the browser and reads its result.
func (b *browser) call(method string, params map[string]any, result any) {
	b.t.Helper()
	b.id++
	m := map[string]any{"id": b.id, "method": method, "params": params}
	if params == nil {
		m["params"] = map[string]any{}
	}
	if b.session != "" && !strings.HasPrefix(method, "Browser.") {
		m["sessionId"] = b.session
	}
	text, err := json.Marshal(m)
	if err == nil {
		_, err = b.to.Write(append(text, 0))
	}
	if err != nil {
		b.t.Errorf("%s: %v", method, err)
		return
	}
	timeout := time.After(time.Minute)
	for {
		select {
		case a, ok := <-b.answers:
			switch {
			case !ok:
				b.t.Errorf("%s: the browser has ended", method)
				return
			case a.Method == "Log.entryAdded" || a.Method == "Runtime.exceptionThrown":
				b.said = append(b.said, string(a.Params))
			case a.ID == b.id && a.Error != nil:
				b.t.Fatalf("%s: %s", method, a.Error.Message)
			case a.ID == b.id:
				if result != nil {
					err = json.Unmarshal(a.Result, result)
				}
				if err != nil {
					b.t.Fatal(err)
				}
				return
			}
		case <-timeout:
			b.t.Fatalf("%s: no answer", method)
		}
	}
}

// eval evaluates an expression on the page as text.
func (b *browser) eval(expression string) string {
	b.t.Helper()
	var r struct {
		Result           struct{ Value any }
		ExceptionDetails json.RawMessage
	}
	b.call("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true}, &r)
	if r.ExceptionDetails != nil {
		b.t.Fatalf("%s: %s", expression, r.ExceptionDetails)
	}
	return fmt.Sprint(r.Result.Value)
}

// until waits for an expression to be true.
func (b *browser) until(expression string) {
	b.t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if b.eval("!!("+expression+")") == "true" {
			return
		}
	}
	b.t.Fatalf("never: %s\nthe page is\n%s\n%s", expression, b.eval("document.body.innerText"), strings.Join(b.said, "\n"))
}

// screen sets the size of the screen and what the reader prefers.
func (b *browser) screen(width, height int, dark bool) {
	b.t.Helper()
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}, nil)
	scheme := map[bool]string{true: "dark", false: "light"}[dark]
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// picture writes what the screen shows to a file of the documentation, if -update is given.
func (b *browser) picture(file string) {
	b.t.Helper()
	if !*update {
		return
	}
	var shot struct{ Data string }
	b.call("Page.captureScreenshot", map[string]any{"format": "png"}, &shot)
	data, err := base64.StdEncoding.DecodeString(shot.Data)
	if err == nil {
		err = os.WriteFile(file, data, 0o644)
	}
	if err != nil {
		b.t.Fatal(err)
	}
}
