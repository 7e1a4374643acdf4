import type { FileFacts, FileType } from '../../sandbox/files.ts';

const TYPES: Readonly<Record<FileType, string | undefined>> = {
  file: 'FILE_TYPE_FILE',
  directory: 'FILE_TYPE_DIRECTORY',
  symlink: 'FILE_TYPE_SYMLINK',
  other: undefined,
};
const TYPE_LETTERS: Readonly<Record<FileType, string>> = { file: '-', directory: 'd', symlink: 'L', other: '?' };
const RIGHTS = 'rwxrwxrwx';

/** Returns the `EntryInfo` of an entry. A link has the type and mode of its target. */
export function toEntry(facts: FileFacts): object {
  const { path, type, mode, target, metadata } = facts;
  return {
    name: nameOf(path),
    type: TYPES[target?.type ?? type],
    path,
    size: String(facts.sizeBytes),
    mode: (target?.type ? target.mode : mode) & 0o777,
    permissions: permissionsOf(type, mode),
    owner: facts.owner,
    group: facts.group,
    modifiedTime: new Date(facts.modifiedAtMs).toISOString(),
    ...(target === null ? {} : { symlinkTarget: target.path }),
    ...(Object.keys(metadata).length === 0 ? {} : { metadata }),
  };
}

/** Returns the last part of a path; `/` of the root. */
export function nameOf(path: string): string {
  return path === '/' ? path : path.slice(path.lastIndexOf('/') + 1);
}

/** Returns the rights as the clients of E2B know them: type, set-id and sticky letters, nine rights. */
function permissionsOf(type: FileType, mode: number): string {
  const letters = [
    type === 'file' ? '' : TYPE_LETTERS[type],
    mode & 0o4000 ? 'u' : '',
    mode & 0o2000 ? 'g' : '',
    mode & 0o1000 ? 't' : '',
  ].join('');
  const rights = [...RIGHTS].map((letter, index) => (mode & (0o400 >> index) ? letter : '-')).join('');
  return `${letters || TYPE_LETTERS.file}${rights}`;
}
