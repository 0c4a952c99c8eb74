package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
)

// configMaps writes a ConfigMap for each caller: the object that a program without a store would keep.
type configMaps struct {
	url    string
	client *http.Client
	made   sync.Map // callers whose object exists
}

func (m *configMaps) write(ctx context.Context, caller int) error {
	method, url := http.MethodPut, fmt.Sprintf("%s/bare-%d", m.url, caller)
	if _, ok := m.made.LoadOrStore(caller, true); !ok {
		method, url = http.MethodPost, m.url
	}
	body := fmt.Sprintf(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "bare-%d"}, "data": {"value": %q}}`, caller, value)
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := m.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s: %.200s", method, url, resp.Status, answer)
	}
	return err
}
