//! Types of channels by number, and the providers of the directory they are like.

/// The program whose numbers are meant. They agree up to 25.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChannelProgram {
    /// <https://github.com/songquanpeng/one-api/blob/main/relay/channeltype/define.go>
    OneApi,
    /// <https://github.com/QuantumNous/new-api/blob/main/constant/channel.go>
    NewApi,
}

impl ChannelProgram {
    /// The word on the command line.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::OneApi => "one-api",
            Self::NewApi => "new-api",
        }
    }
}

/// A type of channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChannelKind {
    /// The provider of the directory.
    pub(super) like: &'static str,
    /// The address, if it is not that of the directory.
    pub(super) base: Option<&'static str>,
}

type KindRow = (i64, &'static str, Option<&'static str>);

const ALIBABA: Option<&str> = Some("https://dashscope.aliyuncs.com/compatible-mode");
const ZHIPU: Option<&str> = Some("https://open.bigmodel.cn/api/paas/v4");
const MOONSHOT: Option<&str> = Some("https://api.moonshot.cn");
const MINIMAX: Option<&str> = Some("https://api.minimax.chat");
const ARK: Option<&str> = Some("https://ark.cn-beijing.volces.com/api/v3");
const SILICON_FLOW: Option<&str> = Some("https://api.siliconflow.cn");

/// Types with the same number in both programs.
const SHARED: [KindRow; 18] = [
    (1, "openai", None),
    (3, "azure", None),
    (6, "compatible", Some("https://api.openaimax.com")),
    (7, "compatible", Some("https://api.ohmygpt.com")),
    (8, "compatible", None),
    (9, "compatible", Some("https://api.caipacity.com")),
    (10, "compatible", Some("https://api.aiproxy.io")),
    (12, "compatible", Some("https://api.api2gpt.com")),
    (13, "compatible", Some("https://api.aigc2d.com")),
    (14, "anthropic", None),
    (16, "zai", ZHIPU),
    (17, "alibaba", ALIBABA),
    (20, "openrouter", None),
    (24, "gemini", None),
    (25, "moonshot", MOONSHOT),
    (31, "compatible", Some("https://api.lingyiwanwu.com")),
    (33, "bedrock-runtime", None),
    (41, "vertex", None),
];
const ONE_API: [KindRow; 20] = [
    (2, "compatible", Some("https://oa.api2d.net")),
    (4, "compatible", Some("https://api.closeai-proxy.xyz")),
    (5, "compatible", Some("https://api.openai-sb.com")),
    (26, "compatible", Some("https://api.baichuan-ai.com")),
    (27, "minimax", MINIMAX),
    (28, "mistral", None),
    (29, "groq", None),
    (30, "ollama", None),
    (32, "compatible", Some("https://api.stepfun.com")),
    (35, "cohere", None),
    (36, "deepseek", None),
    (39, "together", None),
    (40, "byteplus", ARK),
    (41, "compatible", None),
    (42, "vertex", None),
    (44, "compatible", SILICON_FLOW),
    (45, "xai", None),
    (49, "alibaba", ALIBABA),
    (50, "compatible", None),
    (51, "gemini", None),
];
const NEW_API: [KindRow; 11] = [
    (4, "ollama", None),
    (26, "zai", ZHIPU),
    (27, "perplexity", None),
    (34, "cohere", None),
    (35, "minimax", MINIMAX),
    (40, "compatible", SILICON_FLOW),
    (42, "mistral", None),
    (43, "deepseek", None),
    (45, "byteplus", ARK),
    (47, "compatible", None),
    (48, "xai", None),
];

impl ChannelKind {
    /// Returns the type with that number; `None` if it has no counterpart.
    pub(super) fn find(program: ChannelProgram, number: i64) -> Option<Self> {
        let own: &[KindRow] = match program {
            ChannelProgram::OneApi => &ONE_API,
            ChannelProgram::NewApi => &NEW_API,
        };
        let found = own.iter().chain(&SHARED).find(|(own, _, _)| *own == number);
        found.map(|(_, like, base)| Self { like, base: *base })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use catalog::ModelDirectory;

    #[test]
    fn every_type_is_like_a_provider_of_the_directory() {
        for program in [ChannelProgram::OneApi, ChannelProgram::NewApi] {
            for number in 0..200 {
                let Some(kind) = ChannelKind::find(program, number) else { continue };
                assert!(ModelDirectory::embedded().provider(kind.like).is_some(), "{kind:?}");
            }
        }
        let like = |program, number| ChannelKind::find(program, number).map(|kind| kind.like);
        assert_eq!(like(ChannelProgram::OneApi, 36), Some("deepseek"));
        assert_eq!(like(ChannelProgram::NewApi, 43), Some("deepseek"));
        assert_eq!(like(ChannelProgram::NewApi, 36), None);
    }
}
