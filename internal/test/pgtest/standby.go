package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Standby returns a hot standby of the server, which streams its log asynchronously: a second server, on a copy of the data. The
// caller closes it. The statement SELECT pg_promote() makes it a primary.
func (s *Server) Standby(ctx context.Context) (*Server, error) {
	dir, err := os.MkdirTemp(s.config.Dir, "ipalloc-pg-")
	if err != nil {
		return nil, fmt.Errorf("pgtest: %w", err)
	}
	standby := &Server{bin: s.bin, dir: dir, config: s.config}
	if err = give(dir); err == nil {
		cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "pg_basebackup"), "-h", s.dir, "-U", "postgres", "-D", standby.data(),
			"-R", "-c", "fast", "-X", "stream", "--no-sync")
		cmd.SysProcAttr, cmd.Dir, cmd.Env = unprivileged(), dir, environment()
		if out, failed := cmd.CombinedOutput(); failed != nil {
			err = fmt.Errorf("pgtest: pg_basebackup: %w\n%s", failed, out)
		}
	}
	if err == nil {
		err = standby.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, standby.Close())
	}
	return standby, nil
}
