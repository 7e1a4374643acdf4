import { useEffect } from 'preact/hooks';
import { type AnswerOf, call, may } from '../api.ts';
import { sample, useLoaded } from '../live.ts';
import { Action, ago, brief, Failure, Loading, Table } from '../parts.tsx';

type Process = AnswerOf<'listProcesses'>['processes'][number];

/** The running processes that were started to outlive their connection, read again with each new metric. */
export function Processes({ id }: { readonly id: string }) {
  const { value, error, reload } = useLoaded(`processes ${id}`, async ends => {
    return (await call('listProcesses', { params: { instanceId: id }, signal: ends })).processes as readonly Process[];
  });
  const at = sample.value?.at ?? null;
  useEffect(() => {
    if (at !== null) reload();
  }, [at]);
  if (value === undefined) return error === '' ? <Loading /> : <Failure text={error} />;
  const kill = (pid: number) => async () => {
    const options = { params: { instanceId: id, process: String(pid) }, body: { signal: 'SIGKILL' } };
    await call('signalProcess', options);
    reload();
  };
  return (
    <>
      <Failure text={error} />
      <Table
        label="Processes"
        rows={value}
        keyOf={process => String(process.pid)}
        empty={
          <>
            No process runs in the background. <code>{`rookery agent exec --detach ${id} COMMAND`}</code> starts one.
          </>
        }
        columns={[
          { title: 'PID', cell: process => process.pid, isNumber: true },
          { title: 'Command', cell: process => brief(process.command.join(' ')), isMono: true },
          { title: 'User', cell: process => process.user || 'of the sandbox' },
          { title: 'Directory', cell: process => process.working_dir, isMono: true, isWide: true },
          { title: 'Tag', cell: process => process.tag ?? '', isWide: true },
          { title: 'Terminal', cell: process => (process.tty ? 'yes' : 'no'), isWide: true },
          { title: 'Age', cell: process => ago(process.started_at), isNumber: true },
          {
            title: '',
            cell: process =>
              may('write') ? (
                <Action
                  key={process.pid}
                  text="Kill"
                  isDangerous
                  sure={`Kill process ${process.pid}? What it has not saved is lost.`}
                  work={kill(process.pid)}
                />
              ) : null,
          },
        ]}
      />
    </>
  );
}
