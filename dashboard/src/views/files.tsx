import { useRef, useState } from 'preact/hooks';
import { type AnswerOf, ask, call, may, messageOf, pathOf } from '../api.ts';
import { useLoaded } from '../live.ts';
import { ago, bytes, Failure, Input, Loading, Note, Table } from '../parts.tsx';

type File = AnswerOf<'listFiles'>['files'][number];

/** The files in a sandbox, beginning with the directory `start`. */
export function Files({ id, start }: { readonly id: string; readonly start: string }) {
  const [path, setPath] = useState(start);
  const [typed, setTyped] = useState(start);
  const [problem, setProblem] = useState('');
  const upload = useRef<HTMLInputElement>(null);
  const { value, error, reload } = useLoaded(`files ${id} ${path}`, ends =>
    call('listFiles', { params: { instanceId: id }, query: { path }, signal: ends }),
  );
  const go = (to: string) => {
    setPath(to);
    setTyped(to);
    setProblem('');
  };
  const run = (work: () => Promise<void>) => {
    setProblem('');
    work().catch(reason => setProblem(messageOf(reason)));
  };
  const send = (file: globalThis.File) =>
    run(async () => {
      const form = new FormData();
      form.append('path', `${path.replace(/\/$/, '')}/${file.name}`);
      form.append('file', file);
      await ask(pathOf('uploadFile', { params: { instanceId: id } }), { method: 'POST', body: form });
      reload();
    });
  const fetchFile = (file: File) =>
    run(async () => {
      const answer = await ask(pathOf('downloadFile', { params: { instanceId: id }, query: { path: file.path } }));
      const url = URL.createObjectURL(await answer.blob());
      const link = document.createElement('a');
      link.href = url;
      link.download = file.name;
      link.click();
      URL.revokeObjectURL(url);
    });
  /** Opens a link as a directory, or downloads it if it leads to a file. */
  const openLink = (file: File) =>
    run(async () => {
      try {
        await call('listFiles', { params: { instanceId: id }, query: { path: file.path } });
      } catch {
        fetchFile(file);
        return;
      }
      go(file.path);
    });
  return (
    <>
      <form
        class="filters"
        onSubmit={event => {
          event.preventDefault();
          go(typed || '/');
        }}
      >
        <Input label="Directory" value={typed} onInput={setTyped} />
        <button type="submit">Open</button>
        <button type="button" disabled={path === '/'} onClick={() => go(path.replace(/\/[^/]*\/?$/, '') || '/')}>
          Up
        </button>
        {may('write') ? (
          <>
            <button type="button" onClick={() => upload.current?.click()}>
              Upload
            </button>
            <input
              ref={upload}
              type="file"
              class="unseen"
              tabIndex={-1}
              aria-label="File to upload"
              onChange={event => {
                const [file] = event.currentTarget.files ?? [];
                if (file !== undefined) send(file);
                event.currentTarget.value = '';
              }}
            />
          </>
        ) : null}
      </form>
      <Failure text={problem || error} />
      {value === undefined ? (
        <Loading unless={error} />
      ) : (
        <Table
          label={`Files of ${path}`}
          rows={value.files}
          keyOf={file => file.path}
          empty="The directory is empty."
          columns={[
            {
              title: 'Name',
              cell: file =>
                file.type === 'directory' ? (
                  <button type="button" class="link" onClick={() => go(file.path)}>
                    {file.name}/
                  </button>
                ) : file.type === 'file' ? (
                  <button type="button" class="link" onClick={() => fetchFile(file)}>
                    {file.name}
                  </button>
                ) : file.type === 'symlink' ? (
                  <button type="button" class="link" onClick={() => openLink(file)}>
                    {file.name}@
                  </button>
                ) : (
                  file.name
                ),
            },
            { title: 'Size', cell: file => (file.type === 'file' ? bytes(file.size) : ''), isNumber: true },
            { title: 'Mode', cell: file => file.mode, isMono: true, isWide: true },
            { title: 'Changed', cell: file => `${ago(file.modified_at)} ago`, isNumber: true },
          ]}
        />
      )}
      {value?.truncated ? <Note>The list shows only a part of the directory.</Note> : null}
    </>
  );
}
