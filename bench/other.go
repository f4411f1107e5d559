//go:build !linux

package main

import (
	"context"
	"errors"
	"time"

	"github.com/aspengine/asp/apply/commit"
	"github.com/aspengine/asp/internal/vfs"
	"github.com/aspengine/asp/snapshot"
)

var errOther = errors.New("measured on Linux only")

func (r *repo) aside() string                                                     { return "" }
func (ch *change) floor(vfs.Dir, *repo) error                                     { return errOther }
func (r *repo) lstatAll() error                                                   { return errOther }
func (r *repo) hashAll() error                                                    { return errOther }
func fsType(string) string                                                        { return "unknown" }
func kernel() string                                                              { return "unknown kernel" }
func (c *config) memoryRows(context.Context) error                                { return errOther }
func (c *config) scratchRows(context.Context) error                               { return errOther }
func (c *config) place(context.Context, string) (string, func(), error)           { return "", nil, errOther }
func (ch *change) commit(context.Context, vfs.Dir, *repo, commit.SyncStyle) error { return errOther }
func (c *config) sandboxRows(context.Context) error                               { return errOther }
func digestOf(string) (snapshot.Digest, error)                                    { return snapshot.Digest{}, errOther }

func burn(time.Duration) error { return errors.New("processor time is not asked for here") }
