import * as client from '../../../clients/typescript/src/code-archive.ts';
import { RookeryError } from '../../../clients/typescript/src/error.ts';
import { usageError } from '../shared/exit.ts';

/** Packs a directory as the client package does. A problem of the directory is a usage error. */
export function packDirectory(directory: string, archive: string, options: client.PackOptions): Promise<client.Packed> {
  return client.packDirectory(directory, archive, options).catch(refuse);
}

/** Returns the absolute path of a directory. Fails with a usage error when it is none. */
export function codeDirectory(code: string, flag = '--code'): Promise<string> {
  return client.codeDirectory(code, flag).catch(refuse);
}

function refuse(error: unknown): never {
  throw error instanceof RookeryError ? usageError(error.message) : error;
}
