import { Argument, type Command } from 'commander';
import type { Context } from './io.ts';

const SHELLS = { bash: bashScript, zsh: zshScript, fish: fishScript } as const;

const HOW_TO = `Load it in the shell:
  bash  source <(rookery completion bash)              in ~/.bashrc
  zsh   source <(rookery completion zsh)               in ~/.zshrc, after compinit
  fish  rookery completion fish > ~/.config/fish/completions/rookery.fish`;

export function register(program: Command, context: Context): void {
  program
    .command('completion')
    .summary('print the completion script of a shell')
    .description(`Prints a script that completes commands and options.\n\n${HOW_TO}`)
    .addArgument(new Argument('<shell>', 'whose script').choices(Object.keys(SHELLS)))
    .action((shell: keyof typeof SHELLS) => {
      context.io.out.write(SHELLS[shell](program));
    });
}

interface Word {
  readonly text: string;
  readonly doc: string;
}

/** A command by its path (`agent create`): what may stand behind it. */
interface Place {
  readonly path: string;
  readonly commands: readonly Word[];
  readonly options: readonly Word[];
}

function placesOf(command: Command, path: readonly string[] = []): Place[] {
  const visible = command.commands.filter(each => each.name() !== 'help');
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
  };
  const below = visible.flatMap(each =>
    [each.name(), ...each.aliases()].flatMap(name => placesOf(each, [...path, name])),
  );
  return [here, ...below];
}

function oneLine(text: string): string {
  return (text.split('\n')[0] ?? '').replaceAll(/['"`\\$:[\]]/g, '');
}

const texts = (words: readonly Word[]): string => words.map(word => word.text).join(' ');

function bashScript(program: Command): string {
  const cases = placesOf(program).map(
    place => `    '${place.path}') commands='${texts(place.commands)}'; options='${texts(place.options)}' ;;`,
  );
  return `# bash completion of rookery
_rookery() {
  local word=\${COMP_WORDS[COMP_CWORD]} path='' commands='' options='' i
  for ((i = 1; i < COMP_CWORD && i < 3; i++)); do
    [[ \${COMP_WORDS[i]} == -* ]] && break
    path="\${path:+$path }\${COMP_WORDS[i]}"
  done
  case $path in
${cases.join('\n')}
  esac
  if [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
  elif [[ -n $commands ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}
complete -o filenames -F _rookery rookery
`;
}

function zshScript(program: Command): string {
  const list = (words: readonly Word[]): string => words.map(word => `'${word.text}:${word.doc}'`).join(' ');
  const cases = placesOf(program).map(
    place => `    '${place.path}') commands=(${list(place.commands)}); options=(${list(place.options)}) ;;`,
  );
  return `#compdef rookery
# zsh completion of rookery
_rookery() {
  local place='' i
  local -a commands options
  for ((i = 2; i < CURRENT && i < 4; i++)); do
    [[ \${words[i]} == -* ]] && break
    place="\${place:+$place }\${words[i]}"
  done
  case $place in
${cases.join('\n')}
  esac
  if [[ \${words[CURRENT]} == -* ]]; then
    _describe -o option options
  elif (( \${#commands} )); then
    _describe command commands
  else
    _files
  fi
}
compdef _rookery rookery
`;
}

function fishScript(program: Command): string {
  const lines = placesOf(program).flatMap(place => {
    const condition = `__rookery_at ${place.path === '' ? "''" : `'${place.path}'`}`;
    const commands = place.commands.map(
      word => `complete -c rookery -f -n "${condition}" -a '${word.text}' -d '${word.doc}'`,
    );
    const options = place.options.map(
      word => `complete -c rookery -n "${condition}" -l '${word.text.replace(/^-+/, '')}' -d '${word.doc}'`,
    );
    return [...commands, ...options];
  });
  return `# fish completion of rookery
function __rookery_at
  set -l path
  for word in (commandline -opc)[2..-1]
    string match -q -- '-*' $word; and break
    set -a path $word
    test (count $path) -ge 2; and break
  end
  test "$path" = "$argv[1]"
end
${lines.join('\n')}
`;
}
