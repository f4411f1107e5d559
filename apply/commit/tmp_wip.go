package commit

import (
	"context"
	"errors"
	"io"
)

var errWIP = errors.New("not written yet")

type tx struct{}

func begin(Env, string, Options) (*tx, error)                              { return nil, errWIP }
func (t *tx) run(context.Context, []Change) (Result, error)                { return Result{}, errWIP }
func recoverAll(context.Context, Env, RecoverOptions) ([]Recovered, error) { return nil, errWIP }
func attention(context.Context, Env) ([]AttentionPath, error)              { return nil, errWIP }
func showPreImage(context.Context, Env, string) (io.ReadCloser, error)     { return nil, errWIP }
func resolve(context.Context, Env, string, Keep, func(PreImage, io.Reader) error) error {
	return errWIP
}
func forecast(context.Context, Env, []Change, Options) (Facts, error) { return Facts{}, errWIP }
