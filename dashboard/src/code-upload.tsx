import type { ComponentChildren } from 'preact';
import { ApiError, ask, call, pathOf } from './api.ts';
import { packFiles } from './code-archive.ts';
import { bytes, counted } from './parts.tsx';
import { sha256 } from './sha256.ts';

/** Code that was chosen in the browser: the files of a directory, or one archive. */
export type ChosenCode =
  | { readonly kind: 'directory'; readonly name: string; readonly files: readonly File[] }
  | { readonly kind: 'archive'; readonly name: string; readonly file: File };

/** Two fields for code, of which the last one counts. `children` are fields for code without an upload. */
export function CodeInput(props: {
  readonly code: ChosenCode | null;
  readonly onChosen: (code: ChosenCode | null) => void;
  readonly fault?: string;
  readonly hint?: string;
  readonly children?: ComponentChildren;
}) {
  const { code, onChosen, fault = '', hint, children } = props;
  const described = fault === '' ? 'f-code-chosen' : 'f-code-chosen f-code-fault';
  return (
    <fieldset class="group code">
      <legend>Code</legend>
      <div class="grid">
        <div class="input">
          <label for="f-code-directory">Directory</label>
          <input
            id="f-code-directory"
            type="file"
            ref={input => input?.setAttribute('webkitdirectory', '')}
            aria-describedby={described}
            onChange={({ currentTarget }) => {
              const files = [...(currentTarget.files ?? [])];
              const name = files[0]?.webkitRelativePath.split('/', 1)[0] ?? '';
              onChosen(files.length === 0 ? null : { kind: 'directory', name, files });
            }}
          />
        </div>
        <div class="input">
          <label for="f-code-archive">Zip or tar.gz</label>
          <input
            id="f-code-archive"
            type="file"
            accept=".zip,.tgz,.gz"
            aria-describedby={described}
            onChange={({ currentTarget }) => {
              const [file] = currentTarget.files ?? [];
              onChosen(file === undefined ? null : { kind: 'archive', name: file.name, file });
            }}
          />
        </div>
        {children}
      </div>
      <small id="f-code-chosen" class="hint" role="status">
        {code === null
          ? (hint ?? 'Choose a directory, or an archive with the code at its root.')
          : `Sends ${textOf(code)}.`}
      </small>
      {fault === '' ? null : (
        <small id="f-code-fault" class="fault">
          {fault}
        </small>
      )}
    </fieldset>
  );
}

function textOf(code: ChosenCode): string {
  if (code.kind === 'archive') return `${code.name}, ${bytes(code.file.size)}`;
  return `the directory ${code.name}, ${counted(code.files.length, 'file')}`;
}

/** Uploads code if the service does not have it. Returns its URL for mounts and functions. */
export async function uploadCode(code: ChosenCode): Promise<string> {
  const archive =
    code.kind === 'archive'
      ? new Uint8Array(await code.file.arrayBuffer())
      : await packFiles(
          code.files.map(file => ({ path: file.webkitRelativePath.split('/').slice(1).join('/'), content: file })),
        );
  const params = { sha256: await sha256(archive) };
  if (!(await isStored(params))) {
    await ask(pathOf('putCode', { params }), {
      method: 'PUT',
      body: archive,
      headers: { 'content-type': 'application/octet-stream' },
    });
  }
  return `code://${params.sha256}`;
}

async function isStored(params: { readonly sha256: string }): Promise<boolean> {
  try {
    await call('getCode', { params });
    return true;
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return false;
    throw error;
  }
}
