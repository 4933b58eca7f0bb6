// Package checkpoint writes the state of a training to files, and reads it again with any number of ranks.
//
// Every rank writes its part, while the training goes on:
//
//	s, err := checkpoint.New(ctx, comm, "/shared/job", checkpoint.Config{})
//	defer s.Close()
//	state := []checkpoint.Item{
//		checkpoint.Replicated("w", w),                       // the same on all ranks; each writes a share
//		checkpoint.Sharded("moments", mine, offset, total),  // each rank has a part
//		checkpoint.Value("position", &position),             // JSON, of rank 0
//	}
//	step, err := s.Load(ctx, state...) // the newest checkpoint; -1 if there is none
//	…
//	err = s.Start(ctx, step, state...) // copies the state and returns
//	…
//	err = s.Wait()
//
// # Files
//
// The checkpoint of step 1200 is the folder step-1200, which has the files rank-0, rank-1, … and manifest.json, a list of all items, parts and checksums for
// people and programs. The folder must be on a file system that all ranks share, such as NFS, or ranks must be on one host.
//
// A folder gets its name when all files are complete and on the disk, so a crash at any time leaves the checkpoints before. The checksum of a part is CRC-32C;
// [Saver.Load] checks it, and the length and version of each file, and names the file that is damaged, truncated, missing, of another program or of a newer version.
//
// # Errors
//
// An error that one rank has, such as a full disk, is returned on all ranks and names the rank. Nothing is left of the failed checkpoint, the ones before stay, and
// the Saver can still be used. If a rank dies, the error is that of the communicator: see package nexar.
package checkpoint
