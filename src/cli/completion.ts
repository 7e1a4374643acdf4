import { Argument, type Command } from 'commander';
import type { Context } from './shared/io.ts';
import type { NamedKind } from './shared/named-kinds.ts';

const SHELLS = { bash: bashScript, zsh: zshScript, fish: fishScript } as const;
export type Shell = keyof typeof SHELLS;

const HOW_TO = `Load it in the shell:
  bash  source <(rookery completion bash)              in ~/.bashrc
  zsh   source <(rookery completion zsh)               in ~/.zshrc, after compinit
  fish  rookery completion fish > ~/.config/fish/completions/rookery.fish`;

/** Adds the command `rookery completion`, which prints the completion script of a shell. */
export function register(program: Command, context: Context): void {
  program
    .command('completion')
    .summary('print the completion script of a shell')
    .description(
      `Prints a script that completes commands, options, and the names of agents, functions, jobs, pools, secrets and contexts.\n\n${HOW_TO}`,
    )
    .addArgument(new Argument('<shell>', 'whose script').choices(Object.keys(SHELLS)))
    .action((shell: Shell) => {
      context.io.out.write(completionScript(shell, program));
    });
}

/** Returns the script that completes commands, options and names in a shell. */
export function completionScript(shell: Shell, program: Command): string {
  return SHELLS[shell](program);
}

interface Word {
  readonly text: string;
  readonly doc: string;
}

/** A command, by its path (`agent create`), with the words that may follow it. */
interface Place {
  readonly path: string;
  readonly commands: readonly Word[];
  readonly options: readonly Word[];
  /** The kind of name that the first argument expects; null: another argument. */
  readonly names: NamedKind | null;
}

function placesOf(command: Command, path: readonly string[] = []): Place[] {
  const visible = command
    .createHelp()
    .visibleCommands(command)
    .filter(each => each.name() !== 'help');
  const commands = visible.map(each => ({ text: each.name(), doc: oneLine(each.summary() || each.description()) }));
  const options = command.options.map(option => ({
    text: option.long ?? option.flags,
    doc: oneLine(option.description),
  }));
  const choices = command.registeredArguments[0]?.argChoices ?? [];
  const help = { text: '--help', doc: 'show help' };
  const here = {
    path: path.join(' '),
    commands: [...commands, ...choices.map(text => ({ text, doc: '' }))],
    options: [...options, help],
    names: choices.length === 0 ? namesAt(path, command.registeredArguments[0]?.name()) : null,
  };
  const below = visible.flatMap(each =>
    [each.name(), ...each.aliases()].flatMap(name => placesOf(each, [...path, name])),
  );
  return [here, ...below];
}

const OF_ARGUMENT: Readonly<Record<string, NamedKind>> = {
  agent: 'agent',
  agents: 'agent',
  function: 'function',
  job: 'job',
  jobs: 'job',
  schedules: 'schedule',
};
const OF_NOUN: Readonly<Record<string, NamedKind>> = {
  function: 'function',
  pool: 'pool',
  secret: 'secret',
  context: 'context',
};
/** Commands whose argument is a new name. */
const NEW = /^(?:create|register|dev)$/;

function namesAt(path: readonly string[], argument: string | undefined): NamedKind | null {
  const [noun = '', verb = ''] = path;
  if (argument === undefined || NEW.test(path.at(-1) ?? '')) return null;
  return (
    OF_ARGUMENT[argument] ?? (verb !== '' && /^(?:name|names|id|ids)$/.test(argument) ? OF_NOUN[noun] : null) ?? null
  );
}

function oneLine(text: string): string {
  return (text.split('\n')[0] ?? '').replaceAll(/['"`\\$[\]]/g, '');
}

const texts = (words: readonly Word[]): string => words.map(word => word.text).join(' ');

/** Returns the condition of a shell's `case` for every path. Words after the longest path are arguments. */
const pathsOf = (places: readonly Place[]): string =>
  places
    .filter(({ path }) => path !== '')
    .map(({ path }) => `'${path}'`)
    .join('|');

function bashScript(program: Command): string {
  const places = placesOf(program);
  const cases = places.map(
    place =>
      `    '${place.path}') commands='${texts(place.commands)}'; options='${texts(place.options)}'; names='${place.names ?? ''}' ;;`,
  );
  return `# bash completion of rookery
_rookery() {
  local word=\${COMP_WORDS[COMP_CWORD]} path='' next='' commands='' options='' names='' i
  for ((i = 1; i < COMP_CWORD; i++)); do
    next="\${path:+$path }\${COMP_WORDS[i]}"
    case $next in
      ${pathsOf(places)}) path=$next ;;
      *) break ;;
    esac
  done
  case $path in
${cases.join('\n')}
  esac
  if [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
  elif [[ -n $commands ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$word")
  elif [[ -n $names && \${COMP_WORDS[COMP_CWORD-1]} != -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(rookery complete-names "$names" 2> /dev/null)" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}
complete -o filenames -F _rookery rookery
`;
}

function zshScript(program: Command): string {
  const list = (words: readonly Word[]): string => words.map(word => `'${word.text}:${word.doc}'`).join(' ');
  const places = placesOf(program);
  const cases = places.map(
    place =>
      `    '${place.path}') commands=(${list(place.commands)}); options=(${list(place.options)}); names='${place.names ?? ''}' ;;`,
  );
  return `#compdef rookery
# zsh completion of rookery
_rookery() {
  local place='' next='' names='' i
  local -a commands options found
  for ((i = 2; i < CURRENT; i++)); do
    next="\${place:+$place }\${words[i]}"
    case $next in
      ${pathsOf(places)}) place=$next ;;
      *) break ;;
    esac
  done
  case $place in
${cases.join('\n')}
  esac
  if [[ \${words[CURRENT]} == -* ]]; then
    _describe -o option options
  elif (( \${#commands} )); then
    _describe command commands
  elif [[ -n $names && \${words[CURRENT-1]} != -* ]]; then
    found=(\${(f)"$(rookery complete-names $names 2> /dev/null)"})
    compadd -a found
  else
    _files
  fi
}
if [[ $funcstack[1] == _rookery ]]; then
  _rookery "$@"
else
  compdef _rookery rookery
fi
`;
}

function fishScript(program: Command): string {
  const places = placesOf(program);
  const lines = places.flatMap(place => {
    const condition = `__rookery_at ${place.path === '' ? "''" : `'${place.path}'`}`;
    const commands = place.commands.map(
      word => `complete -c rookery -f -n "${condition}" -a '${word.text}' -d '${word.doc}'`,
    );
    const options = place.options.map(
      word => `complete -c rookery -n "${condition}" -l '${word.text.replace(/^-+/, '')}' -d '${word.doc}'`,
    );
    const names =
      place.names === null
        ? []
        : [`complete -c rookery -f -n "${condition}" -a '(rookery complete-names ${place.names} 2> /dev/null)'`];
    return [...commands, ...options, ...names];
  });
  return `# fish completion of rookery
function __rookery_at
  set -l path ''
  for word in (commandline -opc)[2..-1]
    set -l next (string trim -- "$path $word")
    contains -- "$next" ${places
      .filter(({ path }) => path !== '')
      .map(({ path }) => `'${path}'`)
      .join(' ')}
    or break
    set path $next
  end
  test "$path" = "$argv[1]"
end
${lines.join('\n')}
`;
}
