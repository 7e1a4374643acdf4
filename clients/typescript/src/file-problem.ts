const PROBLEMS: Readonly<Record<string, string>> = {
  ENOENT: 'it does not exist',
  EACCES: 'this user has no permission',
  EPERM: 'this user has no permission',
  EROFS: 'its file system is read-only',
  EISDIR: 'it is a directory',
  ENOTDIR: 'a part of its path is not a directory',
  ENOTEMPTY: 'it is a directory with content',
  EEXIST: 'it exists already',
  ENAMETOOLONG: 'its name is too long',
  ELOOP: 'its symbolic links lead in a circle',
  ENOSPC: 'the disk is full',
  EDQUOT: 'the quota of this user is full',
  EMFILE: 'this process has too many open files',
};

/** Describes an error of the file system without its code and path, which the caller names. */
export function fileProblem(error: unknown): string {
  const { code = '', message = String(error) } = error as NodeJS.ErrnoException;
  return PROBLEMS[code] ?? message;
}
